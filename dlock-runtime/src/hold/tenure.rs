//! The state of one hold in this process: until when it is valid, and how it ended.

mod end_plan;
mod neighbours;
mod scheduled;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Error, ErrorKind, Fence, Hold, LockKey, LossCause, Result, Validity};
use dlock_store::engine::simulation::planted;
use dlock_store::engine::{SoleThread, lock_unless_forked};
use dlock_store::line;
use once_cell::race::OnceBox;

use self::end_plan::EndPlan;
pub(crate) use self::end_plan::Ending;
use self::neighbours::Neighbours;
use crate::events::lines::line_of;
use crate::hold::listeners::LossListeners;
use crate::hold::renewal_schedule::{Duties, on_tick};
use crate::hold::session_watch::SessionWatch;
use crate::hold::shared::Shared;
use crate::hold::store::Store;
use crate::queue::{CohortState, Turn};
use crate::site::Label;

/// One hold from its grant to its end. Shared by the guard, the renewal schedule and the scope of the enclosing call.
pub(crate) struct Tenure {
    pub(crate) hold: Hold,
    /// The lock that the key of its claim is in the store.
    pub(crate) lock: LockKey,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared<Self>>,
    pub(crate) label: Label,
    pub(crate) since: BootInstant,
    /// The time between two renewals, in nanoseconds, since there may be many holds; `None` for no renewal.
    cadence: Option<NonZeroU64>,
    /// The end by `max_hold`. No renewal prolongs the hold beyond it.
    pub(crate) max_hold_ends: BootInstant,
    /// Present if the store must do more at the end than free the lock.
    end_plan: Option<Box<EndPlan>>,
    /// The caller's thread, if no other one goes on with its tasks.
    pub(crate) sole_thread: Option<SoleThread>,
    /// Whether it is one of several keys of one call. Those are always taken in the same order.
    #[cfg(debug_assertions)]
    pub(crate) sorted: bool,
    confirmed_until: AtomicU64,
    /// The length of the last grant or renewal, in nanoseconds. A pushed grant is shorter than the ttl.
    granted: AtomicU64,
    state: AtomicU8,
    /// Whether the caller has got the lock. It gets several keys together.
    is_handed_out: AtomicBool,
    /// Whether its release has begun: its guard is gone, or its lease is over.
    released: AtomicBool,
    waiting_for_loss: Mutex<LossListeners>,
    /// The record of an operator who broke the hold, once the store has reported it.
    pub(super) broken: OnceBox<BreakRecord>,
    neighbours: Mutex<Neighbours>,
    pub(super) duties: Mutex<Duties>,
    /// Whether the body has succeeded, once it has ended.
    body: AtomicU8,
    /// The listeners to its session, if the store can report its end.
    session_watch: OnceLock<Arc<SessionWatch<Self>>>,
}

/// The first renewal of a hold on a short grant comes this soon after its take-over. Until then, a silence as long as
/// that grant loses it, whatever its ttl. Most holds of a contended key are over by then.
const FIRST_RENEWAL: Duration = Duration::from_millis(100);

const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST_DEADLINE: u8 = 2;
const LOST_STORE: u8 = 3;
const LOST_MAX_HOLD: u8 = 4;
const LOST_SHUTDOWN: u8 = 5;
const LOST_BROKEN: u8 = 6;

const BODY_UNKNOWN: u8 = 0;
const BODY_SUCCEEDED: u8 = 1;
const BODY_FAILED: u8 = 2;

/// The parts of a new tenure.
pub(crate) struct NewTenure {
    pub(crate) hold: Hold,
    pub(crate) lock: LockKey,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared<Tenure>>,
    pub(crate) label: Label,
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) recorded: bool,
    pub(crate) sole_thread: Option<SoleThread>,
    #[cfg(debug_assertions)]
    pub(crate) sorted: bool,
    pub(crate) turn: Option<Turn>,
    /// The begin of the hold. It is later than the grant if another caller had the hold before.
    pub(crate) since: BootInstant,
    pub(crate) cohort: Option<Box<CohortState>>,
}

impl Tenure {
    pub(crate) fn begin(start: NewTenure) -> Self {
        let since = start.since;
        let next_renewal = start.cadence.map_or(BootInstant::NEVER, |cadence| {
            let granted = start.hold.validity.granted;
            if granted < start.hold.claim.ttl {
                // The store has pushed this grant, and it is short until the first renewal. A hold that ends before
                // that pays nothing.
                let pause = cadence.min(granted / 3).min(FIRST_RENEWAL);
                return on_tick(start.shared.clock.now().after(pause), pause);
            }
            on_tick(start.hold.validity.from.after(cadence), cadence)
        });
        let unlimited = planted("max_hold is not kept");
        Self {
            max_hold_ends: if unlimited { BootInstant::NEVER } else { since.after(start.max_hold) },
            end_plan: EndPlan::new(
                start.min_hold.map(|min_hold| start.shared.clock.now().after(min_hold)),
                start.recorded,
            ),
            sole_thread: start.sole_thread,
            #[cfg(debug_assertions)]
            sorted: start.sorted,
            confirmed_until: AtomicU64::new(start.hold.validity.deadline().as_nanos()),
            granted: AtomicU64::new(nanos(start.hold.validity.granted)),
            state: AtomicU8::new(HELD),
            is_handed_out: AtomicBool::new(false),
            released: AtomicBool::new(false),
            waiting_for_loss: Mutex::default(),
            neighbours: Mutex::new(Neighbours { turn: start.turn, cohort: start.cohort }),
            duties: Mutex::new(Duties {
                due: BootInstant::NEVER,
                next_renewal,
                renewals: 0,
                near_told: false,
                failed: None,
                release_ends: BootInstant::NEVER,
            }),
            hold: start.hold,
            lock: start.lock,
            store: start.store,
            shared: start.shared,
            label: start.label,
            broken: OnceBox::new(),
            body: AtomicU8::new(BODY_UNKNOWN),
            session_watch: OnceLock::new(),
            since,
            cadence: start.cadence.and_then(|cadence| NonZeroU64::new(nanos(cadence))),
        }
    }

    /// The time between two renewals; `None` for no renewal.
    pub(crate) fn cadence(&self) -> Option<Duration> {
        self.cadence.map(|nanos| Duration::from_nanos(nanos.get()))
    }

    /// Until when the hold is valid, unless a renewal is confirmed before. After it, the hold is lost.
    pub(crate) fn valid_until(&self) -> BootInstant {
        BootInstant::from_nanos(self.confirmed_until.load(Ordering::Acquire)).min(self.max_hold_ends)
    }

    /// Notes a confirmed renewal. A late answer to an early request never shortens the validity.
    pub(crate) fn prolong(&self, validity: Validity) {
        let deadline = validity.deadline().as_nanos();
        if self.confirmed_until.fetch_max(deadline, Ordering::AcqRel) < deadline {
            self.granted.store(nanos(validity.granted), Ordering::Release);
        }
        self.shared.events.renewed(&self.label);
    }

    /// The last validity that the store has confirmed.
    pub(crate) fn validity(&self) -> Validity {
        let granted = Duration::from_nanos(self.granted.load(Ordering::Acquire));
        let until = BootInstant::from_nanos(self.confirmed_until.load(Ordering::Acquire));
        Validity::new(until.before(granted.saturating_sub(Validity::margin(granted))), granted)
    }

    /// The time when a fifth of the last grant is left.
    pub(crate) fn near_expiry(&self) -> BootInstant {
        self.valid_until().before(Duration::from_nanos(self.granted.load(Ordering::Acquire)) / 5)
    }

    /// The cause of the loss if the hold has not ended before; `None` if it is valid at `now`.
    pub(crate) fn overdue(&self, now: BootInstant) -> Option<LossCause> {
        if now < self.valid_until() {
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

    /// Whether it was released, and not lost.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
    }

    /// Its release begins. A shutdown that sees this also sees the job of the release.
    pub(crate) fn release_begins(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Whether its release has begun. A lost hold whose body still runs is not being released.
    pub(crate) fn is_being_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
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
            LossCause::Broken => LOST_BROKEN,
            LossCause::MaxHold => LOST_MAX_HOLD,
            LossCause::Shutdown => LOST_SHUTDOWN,
            LossCause::Released | LossCause::Unconfirmed => RELEASED,
            // The store, or a cause that a later contract adds. Both are losses.
            _ => LOST_STORE,
        });
        if lost && !planted("a loss wakes nobody") {
            let listeners = self.listeners().map(|mut listeners| std::mem::take(&mut *listeners));
            listeners.unwrap_or_default().wake();
        }
        lost
    }

    fn change(&self, to: u8) -> bool {
        self.state.compare_exchange(HELD, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// None in a child after `fork`, if the parent had locked them just then.
    pub(crate) fn listeners(&self) -> Option<MutexGuard<'_, LossListeners>> {
        lock_unless_forked(&self.waiting_for_loss)
    }

    /// Whether its call has the lock. A call for several keys gets all of its locks at once.
    pub(crate) fn is_handed_out(&self) -> bool {
        self.is_handed_out.load(Ordering::Acquire)
    }

    /// The caller gets the lock. From here on its end keeps the key, or records the run, if that was asked for.
    pub(crate) fn handed_out(&self) {
        self.is_handed_out.store(true, Ordering::Release);
        if let Some(end_plan) = &self.end_plan {
            end_plan.handed_out();
        }
    }

    /// Notes how the body ended, if that is to be recorded.
    pub(crate) fn ran(&self, succeeded: bool) {
        if let Some(end_plan) = &self.end_plan {
            end_plan.ran(succeeded, || self.shared.clock.now().since(self.since));
        }
    }

    /// Whether a run that the store records has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.end_plan.as_ref().is_some_and(|end_plan| end_plan.has_succeeded())
    }

    /// Notes whether the body has succeeded, for a store that makes its work final, and not for a record.
    pub(crate) fn ended_well(&self, succeeded: bool) {
        let end = if succeeded { BODY_SUCCEEDED } else { BODY_FAILED };
        // The first word counts.
        let _ = self.body.compare_exchange(BODY_UNKNOWN, end, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Its work is not made final, however the body ended.
    pub(crate) fn note_undone(&self) {
        self.body.store(BODY_FAILED, Ordering::Release);
    }

    /// Whether the body has succeeded; `None` while nobody knows.
    pub(crate) fn succeeded(&self) -> Option<bool> {
        match self.body.load(Ordering::Acquire) {
            BODY_UNKNOWN => None,
            end => Some(end == BODY_SUCCEEDED),
        }
    }

    /// How the store is to end the hold now, if not by simply freeing it.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.end_plan.as_ref()?.ending(self.shared.clock.now())
    }

    pub(crate) fn fence(&self) -> Result<Fence> {
        match self.hold.token {
            Some(token) => Ok(Fence::new(self.lock.clone(), token).sensitive(self.label.is_sensitive())),
            None => Err(self.error(
                ErrorKind::Unsupported { need: "a store with fencing tokens".into() },
                "this store gives no fencing tokens",
            )),
        }
    }

    /// Notes the record of the operator who broke the hold; kept for all that ask for the cause.
    pub(crate) fn broken_by(&self, record: BreakRecord) {
        let record_text = record.as_str().to_owned();
        // The first answer stays: one hold is broken once.
        if self.broken.set(Box::new(record)).is_err() {
            return;
        }
        let label = self.label.clone();
        line(move || {
            line_of!(warn, label, record = record_text, "an operator has broken this hold");
        });
    }

    /// Why the store does not know the hold any more, as far as it has reported it.
    pub(crate) fn told_cause(&self) -> LossCause {
        if self.broken.get().is_some() { LossCause::Broken } else { LossCause::Store }
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        self.named(Error::new(kind, message))
    }

    /// Adds the key and the store to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        let key = self.hold.claim.key.as_str();
        error.with_key_or_hash(key, self.label.is_sensitive()).with_backend(&self.store.name)
    }
}

impl fmt::Debug for Tenure {
    /// Shows no sensitive key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("label", &self.label)
            .field("hold", &self.label.hold_id())
            .finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const fn cause(state: u8) -> LossCause {
    match state {
        RELEASED => LossCause::Released,
        LOST_STORE => LossCause::Store,
        LOST_BROKEN => LossCause::Broken,
        LOST_MAX_HOLD => LossCause::MaxHold,
        LOST_SHUTDOWN => LossCause::Shutdown,
        _ => LossCause::Deadline,
    }
}

/// The number of looks at a hold by this thread. A test with many holds bounds this work, not the time.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The looks since the last call.
    pub(crate) fn taken() -> usize {
        STEPS.take()
    }
}

#[cfg(test)]
mod tests;
