//! One hold in this process: until when it is valid. Beside it stand the types that know holds and that each hold knows:
//! the parts of its registry, the schedule of all holds, and the watch of its session.

mod end_plan;
mod ending;
mod neighbours;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, Error, ErrorKind, Fence, Hold, LockKey, LossCause, Result, Validity};
use dlock_store::engine::SoleThread;
use dlock_store::engine::simulation::planted;
use dlock_store::{Clock, Run};
use once_cell::race::OnceBox;
use tokio::sync::Notify;

use self::end_plan::EndPlan;
pub(crate) use self::end_plan::Ending;
use crate::events::observe::Events;
use crate::events::shutdown::{Jobs, ShutdownSignal};
use crate::hold::duties::{Duties, on_tick};
use crate::hold::hold_state::HoldState;
use crate::hold::store::Store;
use crate::queue::{CohortHolds, CohortState, Turn};
use crate::site::Label;

/// One hold from its grant to its end. Shared by the guard, the renewal schedule and the scope of the enclosing call.
pub(crate) struct Tenure {
    pub(crate) hold: Hold,
    /// The lock that the key of its claim is in the store.
    pub(crate) lock: LockKey,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared>,
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
    pub(super) state: HoldState,
    /// Whether the caller has got the lock. It gets several keys together.
    is_handed_out: AtomicBool,
    /// Whether its release has begun: its guard is gone, or its lease is over.
    released: AtomicBool,
    /// The record of an operator who broke the hold, once the store has reported it.
    pub(super) broken: OnceBox<BreakRecord>,
    neighbours: Mutex<Neighbours>,
    pub(super) duties: Mutex<Duties>,
    /// Whether the body has succeeded, once it has ended.
    body: AtomicU8,
    /// The listeners to its session, if the store can report its end.
    pub(super) session_watch: OnceLock<Arc<SessionWatch>>,
}

/// The relation of a hold to its neighbours: the other callers of this process that want the key.
#[derive(Debug)]
struct Neighbours {
    /// Kept as long as the hold, so that no neighbour asks before the lock is free in the store.
    turn: Option<Turn>,
    /// Present while the hold may be passed on.
    cohort: Option<Box<CohortState>>,
}

/// The parts of a registry that all of its holds share.
///
/// Aligned, because all threads of a program share it. Otherwise the fields that they read would lie beside counters
/// that they all write, and would come from another processor's cache each time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) renewals: Arc<RenewalSchedule>,
    pub(crate) events: Arc<Events>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) cohorts: Arc<CohortHolds>,
    pub(crate) shutdown: ShutdownSignal,
    /// Holds that this process has declared lost while the store still had their lock, because the body may run on.
    pub(super) left_to_lease: Mutex<Vec<Weak<Tenure>>>,
}

/// The holds of one registry, ordered by the time of their next duty.
#[derive(Debug)]
pub(crate) struct RenewalSchedule {
    pub(super) clock: Clock,
    pub(super) table: Mutex<DueHolds>,
    /// The watches of sessions in which several holds live, by store and group.
    pub(super) groups: Mutex<BTreeMap<(usize, u64), Weak<SessionWatch>>>,
    /// Woken if a duty is earlier than the end of the present sleep.
    pub(super) earlier: Notify,
    pub(super) started: AtomicBool,
    pub(super) stopped: AtomicBool,
    pub(super) dead: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct DueHolds {
    /// Ordered by the instant, and at one instant by the hold's number.
    pub(super) due: BTreeMap<(BootInstant, usize), Arc<Tenure>>,
    /// The holds that were taken out of `due` and are being put back.
    pub(super) attended: Vec<Arc<Tenure>>,
    pub(super) sleeping_until: BootInstant,
}

/// Listens to one session. It ends with the last hold that lives in it.
#[derive(Debug)]
pub(crate) struct SessionWatch(pub(super) Mutex<WatchedHolds>);

#[derive(Debug)]
pub(crate) struct WatchedHolds {
    /// By their numbers. Weak, because a hold that nobody else has must end.
    pub(super) holds: BTreeMap<usize, Weak<Tenure>>,
    /// Dropping it ends the task.
    pub(super) task: Option<Run<()>>,
}

/// The first renewal of a hold on a short grant comes this soon after its take-over. Until then, a silence as long as
/// that grant loses it, whatever its ttl. Most holds of a contended key are over by then.
const FIRST_RENEWAL_DELAY: Duration = Duration::from_millis(100);

const BODY_UNKNOWN: u8 = 0;
const BODY_SUCCEEDED: u8 = 1;
const BODY_FAILED: u8 = 2;

/// The parts of a new tenure.
pub(crate) struct NewTenure {
    pub(crate) hold: Hold,
    pub(crate) lock: LockKey,
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) label: Label,
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) recorded: bool,
    pub(crate) sole_thread: Option<SoleThread>,
    #[cfg(debug_assertions)]
    pub(crate) sorted: bool,
    pub(crate) turn: Option<Turn>,
    /// The beginning of the hold. It is later than the grant if another caller had the hold before.
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
                let pause = cadence.min(granted / 3).min(FIRST_RENEWAL_DELAY);
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
            state: HoldState::held(),
            is_handed_out: AtomicBool::new(false),
            released: AtomicBool::new(false),
            neighbours: Mutex::new(Neighbours { turn: start.turn, cohort: start.cohort }),
            duties: Mutex::new(Duties::new(next_renewal)),
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

    pub(crate) fn fence(&self) -> Result<Fence> {
        match self.hold.token {
            Some(token) => Ok(Fence::new(self.lock.clone(), token).sensitive(self.label.is_sensitive())),
            None => Err(self.error(
                ErrorKind::Unsupported { need: "a store with fencing tokens".into() },
                "this store gives no fencing tokens",
            )),
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        self.named(Error::new(kind, message))
    }

    /// Adds the key and the store to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        self.store.named(error, (&self.hold.claim.key, &self.lock), self.label.is_sensitive())
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
