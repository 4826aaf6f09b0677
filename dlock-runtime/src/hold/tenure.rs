//! The life of one hold in this process: how long we believe in it, and how it ended.

mod end_plan;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{Home, margin};
use dlock_contract::{BootInstant, Ending, Error, ErrorKind, Fence, Hold, LossCause, Result, Validity};

use self::end_plan::EndPlan;
use crate::hold::listeners::LossListeners;
use crate::hold::renewal_schedule::{Duties, Scheduled, on_tick};
use crate::hold::shared::Shared;
use crate::hold::store::Store;
use crate::queue::{CohortState, Handover, LocalHold, Next, ServedRuntime, Turn};
use crate::site::Label;

/// One hold from its grant to its end. Shared by the guard, the watchdog and all that ask for the enclosing call.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) hold: Hold,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared<Self>>,
    pub(crate) label: Label,
    /// The enclosing call's, for [`crate::scope`].
    pub(crate) parent: Option<Arc<Self>>,
    pub(crate) since: BootInstant,
    /// How often to renew; `None` for never.
    pub(crate) cadence: Option<Duration>,
    /// `max_hold`: no renewal prolongs it beyond.
    pub(crate) max_hold_ends: BootInstant,
    /// Present if the store does more at the end than free the lock.
    end_plan: Option<Box<EndPlan>>,
    /// The caller's thread, if it is all that its runtime has.
    pub(crate) home: Option<Home>,
    /// Was it taken as one of several keys, which have one order?
    #[cfg(debug_assertions)]
    pub(crate) sorted: bool,
    confirmed_until: AtomicU64,
    /// For how long the last grant or renewal was, in nanoseconds; a pushed grant is shorter than the ttl.
    granted: AtomicU64,
    state: AtomicU8,
    waiting_for_loss: Mutex<LossListeners>,
    local: Mutex<Local>,
    duties: Mutex<Duties>,
}

/// What a hold has to do with its neighbours in this process.
#[derive(Debug)]
struct Local {
    /// Goes with the hold, so that no neighbour asks before the store is free.
    turn: Option<Turn>,
    /// Present while the hold may be passed on.
    cohort: Option<Box<CohortState>>,
}

/// So soon after its take-over a hold on a short grant is renewed for the first time. Until then a silence as long as that
/// grant loses it, whatever its ttl; most holds of a contended key are over by then.
const FIRST_RENEWAL: Duration = Duration::from_millis(100);

const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST_DEADLINE: u8 = 2;
const LOST_STORE: u8 = 3;
const LOST_MAX_HOLD: u8 = 4;
const LOST_SHUTDOWN: u8 = 5;

/// What a new tenure is made of.
pub(crate) struct NewTenure {
    pub(crate) hold: Hold,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared<Tenure>>,
    pub(crate) label: Label,
    pub(crate) parent: Option<Arc<Tenure>>,
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) recorded: bool,
    pub(crate) home: Option<Home>,
    #[cfg(debug_assertions)]
    pub(crate) sorted: bool,
    pub(crate) turn: Option<Turn>,
    /// Since when; a hold that was passed on was granted to another one.
    pub(crate) since: BootInstant,
    pub(crate) cohort: Option<Box<CohortState>>,
}

/// Of a call with many keys each hold is inside of the one before: one after another, and not one within another, which
/// would need a stack as long as the list.
impl Drop for Tenure {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(outer) = next {
            next = Arc::into_inner(outer).and_then(|mut last| last.parent.take());
        }
    }
}

impl Tenure {
    pub(crate) fn begin(start: NewTenure) -> Self {
        let since = start.since;
        let next_renewal = start.cadence.map_or(BootInstant::NEVER, |cadence| {
            let granted = start.hold.validity.granted;
            if granted < start.hold.claim.ttl {
                // Handed over: it lives on a short grant until its first renewal. A hold that ends before that pays nothing.
                let pause = cadence.min(granted / 3).min(FIRST_RENEWAL);
                return on_tick(start.shared.clock.now().after(pause), pause);
            }
            on_tick(start.hold.validity.from.after(cadence), cadence)
        });
        Self {
            max_hold_ends: since.after(start.max_hold),
            end_plan: EndPlan::new(
                start.min_hold.map(|min_hold| start.shared.clock.now().after(min_hold)),
                start.recorded,
            ),
            home: start.home,
            #[cfg(debug_assertions)]
            sorted: start.sorted,
            confirmed_until: AtomicU64::new(start.hold.validity.deadline().as_nanos()),
            granted: AtomicU64::new(nanos(start.hold.validity.granted)),
            state: AtomicU8::new(HELD),
            waiting_for_loss: Mutex::default(),
            local: Mutex::new(Local { turn: start.turn, cohort: start.cohort }),
            duties: Mutex::new(Duties { due: None, next_renewal, renewing: false, near_told: false }),
            hold: start.hold,
            store: start.store,
            shared: start.shared,
            label: start.label,
            parent: start.parent,
            since,
            cadence: start.cadence,
        }
    }

    /// When we stop believing, unless a renewal is confirmed before.
    pub(crate) fn valid_until(&self) -> BootInstant {
        BootInstant::from_nanos(self.confirmed_until.load(Ordering::Acquire)).min(self.max_hold_ends)
    }

    /// A renewal was confirmed. A late answer to an early request never shortens what is known.
    pub(crate) fn prolong(&self, validity: Validity) {
        self.confirmed_until.fetch_max(validity.deadline().as_nanos(), Ordering::AcqRel);
        self.granted.store(nanos(validity.granted), Ordering::Release);
        self.shared.events.renewed(&self.label);
    }

    /// What the store is known to have granted.
    pub(crate) fn validity(&self) -> Validity {
        let granted = Duration::from_nanos(self.granted.load(Ordering::Acquire));
        let until = BootInstant::from_nanos(self.confirmed_until.load(Ordering::Acquire));
        Validity { from: until.before(granted.saturating_sub(margin(granted))), granted }
    }

    /// When a fifth of what was granted is left.
    pub(crate) fn near_expiry(&self) -> BootInstant {
        self.valid_until().before(Duration::from_nanos(self.granted.load(Ordering::Acquire)) / 5)
    }

    /// Why it is over at `now`, although nobody has said so yet.
    pub(crate) fn overdue(&self, now: BootInstant) -> Option<LossCause> {
        if !self.is_held() || now < self.valid_until() {
            None
        } else if self.max_hold_ends <= BootInstant::from_nanos(self.confirmed_until.load(Ordering::Acquire)) {
            Some(LossCause::MaxHold)
        } else {
            Some(LossCause::Deadline)
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// Was it released in order?
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
    }

    /// How it has ended; `None` while it is held.
    pub(crate) fn ended(&self) -> Option<LossCause> {
        match self.state.load(Ordering::Acquire) {
            HELD => None,
            state => Some(cause(state)),
        }
    }

    /// Held → released. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        self.change(RELEASED)
    }

    /// Held → lost. False if it had ended before.
    pub(crate) fn mark_lost(&self, cause: LossCause) -> bool {
        let lost = self.change(match cause {
            LossCause::Deadline => LOST_DEADLINE,
            LossCause::MaxHold => LOST_MAX_HOLD,
            LossCause::Shutdown => LOST_SHUTDOWN,
            LossCause::Released | LossCause::Unconfirmed => RELEASED,
            // The store, or a cause of a later contract: a loss in any case.
            _ => LOST_STORE,
        });
        if lost {
            let listeners = std::mem::take(&mut *self.listeners());
            listeners.wake();
        }
        lost
    }

    fn change(&self, to: u8) -> bool {
        self.state.compare_exchange(HELD, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn listeners(&self) -> MutexGuard<'_, LossListeners> {
        self.waiting_for_loss.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller gets the lock. From here on its end keeps the key, or records the run, if that was asked for.
    pub(crate) fn handed_out(&self) {
        if let Some(end_plan) = &self.end_plan {
            end_plan.handed_out();
        }
    }

    /// Notes how the body ended, if that is to be recorded.
    pub(crate) fn ran(&self, succeeded: Option<bool>) {
        if let Some(end_plan) = &self.end_plan {
            end_plan.ran(succeeded, || self.shared.clock.now().since(self.since));
        }
    }

    /// How the store is to end the hold now, if not by simply freeing it.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.end_plan.as_ref()?.ending(self.shared.clock.now())
    }

    pub(crate) fn fence(&self) -> Result<Fence> {
        match self.hold.token {
            Some(token) => Ok(Fence::new(self.hold.claim.key.clone(), token)),
            None => Err(self.error(
                ErrorKind::Unsupported { need: "a store with fencing tokens".into() },
                "this store gives no fencing tokens",
            )),
        }
    }

    /// For which caller of this process the release shall ask.
    pub(crate) fn next(&self) -> Option<Next> {
        self.local().turn.as_mut()?.next()
    }

    /// Lets the next caller of this process ask.
    pub(crate) fn pass_turn(&self) {
        drop(self.take_turn());
    }

    /// Lets the next caller of this process stand in the store's line, while this hold goes on; or, if its release asks
    /// for that one anyway, those who have to stand there themselves.
    pub(crate) fn share_turn(&self) {
        let Some(mut turn) = self.take_turn() else { return };
        let serves = self.release_serves_next().then_some(ServedRuntime(self.hold.claim.origin));
        turn.hold(LocalHold { home: self.home, serves });
        self.local().turn = Some(turn);
    }

    /// Can its release ask for the next caller of this process?
    fn release_serves_next(&self) -> bool {
        let plainly = self.end_plan.is_none() && !self.hold.claim.mode.is_shared();
        plainly && self.store.backend.capabilities().carries
    }

    /// Lets no other caller of this process ask while this hold goes on.
    pub(crate) fn keep_turn(&self) {
        if let Some(turn) = &mut self.local().turn {
            turn.keep(self.home);
        }
    }

    /// Is a renewal under way?
    pub(crate) fn is_renewing(&self) -> bool {
        self.duties().renewing
    }

    /// What allows to pass the hold on, once: only of a hold that was ours to its end and that can simply be freed.
    pub(crate) fn take_cohort(&self) -> Option<Box<CohortState>> {
        let cohort = self.local().cohort.take();
        cohort.filter(|_| self.is_released())
    }

    /// Lets the next caller of this process have the hold; false if there is nobody whom it can be given to.
    pub(crate) fn pass_turn_with(&self, handover: Handover) -> bool {
        let Some(own) = self.take_turn() else { return false };
        let kept = own.pass(handover);
        let passed = kept.is_none();
        self.local().turn = kept;
        passed
    }

    /// Taken out of the mutex by callers that wake others with it: a waker may do anything. The caller that puts it
    /// back is the only one that knows the hold, or the one that releases it.
    fn take_turn(&self) -> Option<Turn> {
        self.local().turn.take()
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn loss(&self, cause: LossCause) -> Error {
        self.error(ErrorKind::Lost(cause), cause.message())
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        self.named(Error::new(kind, message))
    }

    /// Says which lock an error is about.
    pub(crate) fn named(&self, error: Error) -> Error {
        error.with_key(self.hold.claim.key.as_str()).with_backend(&self.store.name)
    }
}

impl Scheduled for Tenure {
    fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_duty(&self, duties: &Duties) -> Option<BootInstant> {
        let renewal = if duties.renewing { BootInstant::NEVER } else { duties.next_renewal };
        let near = if duties.near_told { BootInstant::NEVER } else { self.near_expiry() };
        Some(renewal.min(near).min(self.valid_until())).filter(|_| self.is_held())
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const fn cause(state: u8) -> LossCause {
    match state {
        RELEASED => LossCause::Released,
        LOST_STORE => LossCause::Store,
        LOST_MAX_HOLD => LossCause::MaxHold,
        LOST_SHUTDOWN => LossCause::Shutdown,
        _ => LossCause::Deadline,
    }
}

/// How often this thread has looked at a hold: a test of many holds is bounded in work, not in time.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Those since the last time.
    pub(crate) fn taken() -> usize {
        STEPS.take()
    }
}

#[cfg(test)]
mod tests;
