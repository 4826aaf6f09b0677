//! The schedule of a registry's holds: when a renewal, a warning or the end of validity is due for each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::Clock;
use dlock_store::engine::simulation::is_here as is_simulated;
use tokio::sync::Notify;

use crate::hold::session_watch::{GroupWatches, SessionWatch};

/// The holds of one registry, ordered by the time of their next duty.
#[derive(Debug)]
pub(crate) struct RenewalSchedule<H> {
    pub(super) clock: Clock,
    table: Mutex<Table<H>>,
    /// The watches of sessions in which several holds live.
    pub(super) groups: GroupWatches<H>,
    /// Woken if a duty is earlier than the end of the present sleep.
    pub(super) earlier: Notify,
    pub(super) started: AtomicBool,
    pub(super) stopped: AtomicBool,
    pub(super) dead: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Table<H> {
    /// Ordered by the instant, and at one instant by the hold's number.
    pub(super) due: BTreeMap<(BootInstant, usize), Arc<H>>,
    /// The holds that were taken out of `due` and are being put back.
    pub(super) attended: Vec<Arc<H>>,
    sleeping_until: BootInstant,
}

/// The part of a hold that the schedule knows. It does not know `Tenure`, which knows the schedule.
pub(crate) trait Scheduled {
    fn duties(&self) -> MutexGuard<'_, Duties>;

    /// The time of the next duty; `None` once the hold has ended.
    fn next_duty(&self, duties: &Duties) -> Option<BootInstant>;

    fn is_held(&self) -> bool;

    /// The hold's number in a simulation. No other hold of the process has it.
    fn number(&self) -> usize;

    /// The watch of its session; `None` if there is none.
    fn session_watch(&self) -> Option<&SessionWatch<Self>>
    where
        Self: Sized;
}

/// The number of a hold: its address. In a simulation it comes from the seed, because addresses differ between two
/// runs.
pub(super) fn number<H: Scheduled>(hold: &H) -> usize {
    if is_simulated() { hold.number() } else { std::ptr::from_ref(hold) as usize }
}

/// A failed renewal: the words of the error, and the server's own code.
#[derive(Clone, Debug)]
pub(crate) struct FailedRenewal {
    pub(crate) reason: Arc<str>,
    pub(crate) code: Option<Arc<str>>,
}

/// The state that the schedule keeps for a hold.
#[derive(Debug)]
pub(crate) struct Duties {
    /// Its place in the schedule; [`BootInstant::NEVER`] if it has none.
    pub(crate) due: BootInstant,
    pub(crate) next_renewal: BootInstant,
    /// The renewals that are under way: one of the schedule, and those that are sent ahead of it.
    pub(crate) renewals: u32,
    pub(crate) near_told: bool,
    /// The last renewal, if it failed.
    pub(crate) failed: Option<FailedRenewal>,
    /// The instant by which its release must end; [`BootInstant::NEVER`] if nobody checks that.
    pub(crate) release_ends: BootInstant,
}

impl<H> RenewalSchedule<H> {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            table: Mutex::new(Table { due: BTreeMap::new(), attended: Vec::new(), sleeping_until: BootInstant::NEVER }),
            groups: GroupWatches::new(),
            earlier: Notify::new(),
            started: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        }
    }

    /// Ends the renewals of a registry that was dropped.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.earlier.notify_one();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table<H>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Scheduled> RenewalSchedule<H> {
    /// All holds at this moment.
    pub(crate) fn holds(&self) -> Vec<Arc<H>> {
        let table = self.lock();
        let mut holds: Vec<_> = table.due.values().chain(&table.attended).cloned().collect();
        drop(table);
        holds.sort_by_key(|hold| number(&**hold));
        holds.dedup_by_key(|hold| Arc::as_ptr(hold));
        holds.retain(|hold| hold.is_held());
        holds
    }

    /// Removes a hold that has ended.
    pub(crate) fn remove(&self, hold: &H) {
        let mut table = self.lock();
        let due = std::mem::replace(&mut hold.duties().due, BootInstant::NEVER);
        let removed = table.due.remove(&(due, number(hold)));
        drop(table);
        drop(removed);
        if let Some(watch) = hold.session_watch() {
            watch.forget(hold);
        }
    }

    /// Puts a hold at the time of its next duty.
    pub(super) fn put(&self, hold: &Arc<H>) {
        let mut table = self.lock();
        let mut duties = hold.duties();
        let before = std::mem::replace(&mut duties.due, BootInstant::NEVER);
        table.due.remove(&(before, number(&**hold)));
        let Some(due) = hold.next_duty(&duties) else { return };
        duties.due = due;
        table.due.insert((due, number(&**hold)), hold.clone());
        if due < table.sleeping_until {
            self.earlier.notify_one();
        }
    }

    /// Takes the holds with a duty that is due now. Returns the time of the next duty, too.
    pub(super) fn take_due(&self) -> (Vec<Arc<H>>, BootInstant) {
        let now = self.clock.now();
        let mut table = self.lock();
        let later = table.due.split_off(&(now, usize::MAX));
        let due: Vec<_> = std::mem::replace(&mut table.due, later).into_values().collect();
        for hold in &due {
            hold.duties().due = BootInstant::NEVER;
        }
        let next = table.due.first_key_value().map_or(BootInstant::NEVER, |(key, _)| key.0);
        table.attended.clone_from(&due);
        table.sleeping_until = next;
        (due, next)
    }
}

/// Moves a renewal up to the tick before it, so that one request serves all holds that are due in that tick. Ticks are
/// powers of two, an eighth of the pause at most: holds of different cadences share them.
pub(crate) fn on_tick(due: BootInstant, pause: Duration) -> BootInstant {
    let most = u64::try_from(pause.as_nanos() / 8).unwrap_or(u64::MAX).max(1);
    let tick = 1 << most.ilog2();
    BootInstant::from_nanos(due.as_nanos() / tick * tick)
}
