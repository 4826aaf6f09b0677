//! The schedule of a registry's holds: when a renewal, a warning or the end of validity is due for each.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use dlock_contract::BootInstant;
use dlock_store::Clock;
use dlock_store::engine::simulation::is_here as is_simulated;
use tokio::sync::Notify;

use crate::hold::duties::Duties;
use crate::hold::release::release_bound;
use crate::hold::tenure::{DueHolds, RenewalSchedule, SessionWatch, Tenure};
use crate::queue::TAKEN_UP_WITHIN;
use crate::sync::{Mutex, MutexGuard, planted};

impl RenewalSchedule {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            table: Mutex::new(DueHolds {
                due: BTreeMap::new(),
                attended: Vec::new(),
                sleeping_until: BootInstant::NEVER,
            }),
            groups: Mutex::default(),
            earlier: Notify::new(),
            started: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DueHolds> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All holds at this moment.
    pub(crate) fn holds(&self) -> Vec<Arc<Tenure>> {
        let table = self.lock();
        let mut holds: Vec<_> = table.due.values().chain(&table.attended).cloned().collect();
        drop(table);
        holds.sort_by_key(|hold| hold.number());
        holds.dedup_by_key(|hold| Arc::as_ptr(hold));
        holds.retain(|hold| hold.is_held());
        holds
    }

    /// Removes a hold that has ended.
    pub(crate) fn remove(&self, hold: &Tenure) {
        let mut table = self.lock();
        let due = std::mem::replace(&mut hold.duties().due, BootInstant::NEVER);
        let removed = table.due.remove(&(due, hold.number()));
        drop(table);
        drop(removed);
        if let Some(watch) = hold.session_watch.get() {
            watch.forget(hold);
        }
    }

    /// Puts a hold at the time of its next duty.
    pub(super) fn put(&self, hold: &Arc<Tenure>) {
        let early = planted("a duty is decided before the schedule is locked").then(|| hold.next_duty(&hold.duties()));
        let mut table = self.lock();
        let mut duties = hold.duties();
        let before = std::mem::replace(&mut duties.due, BootInstant::NEVER);
        table.due.remove(&(before, hold.number()));
        let Some(due) = early.unwrap_or_else(|| hold.next_duty(&duties)) else { return };
        duties.due = due;
        table.due.insert((due, hold.number()), hold.clone());
        if due < table.sleeping_until {
            self.earlier.notify_one();
        }
    }

    /// Takes the holds with a duty that is due now. Returns the time of the next duty, too.
    pub(super) fn take_due(&self) -> (Vec<Arc<Tenure>>, BootInstant) {
        let now = self.clock.now();
        let mut table = self.lock();
        let later = table.due.split_off(&(now, usize::MAX));
        let due: Vec<_> = std::mem::replace(&mut table.due, later).into_values().collect();
        for hold in &due {
            hold.duties().due = BootInstant::NEVER;
        }
        let next = table.due.first_key_value().map_or(BootInstant::NEVER, |(key, _)| key.0);
        if !planted("a hold that is attended to is in no list") {
            table.attended.clone_from(&due);
        }
        if planted("the sleep is noted after the look") {
            drop(table);
            table = self.lock();
        }
        table.sleeping_until = next;
        (due, next)
    }
}

impl Tenure {
    /// Whether a renewal is under way.
    pub(crate) fn is_renewing(&self) -> bool {
        self.duties().renewals > 0
    }

    /// Notes that a renewal is under way. False if the hold has ended.
    pub(crate) fn begin_renewal(&self) -> bool {
        let mut duties = self.duties();
        let held = self.is_held();
        duties.renewals += u32::from(held);
        held
    }

    /// Its release begins in its caller's task. That task may not be polled, and where leases do not end alone, the store
    /// would then keep the lock as long as this process lives. There the schedule looks whether the release has ended.
    /// Returns whether it does.
    pub(crate) fn watch_release(self: &Arc<Self>) -> bool {
        let is_watched = !self.store.backend.profile().expires_alone;
        if is_watched {
            let within = release_bound(self) + TAKEN_UP_WITHIN;
            self.duties().release_ends = self.shared.clock.now().after(within);
            self.shared.renewals.put(self);
        }
        is_watched
    }

    /// Notes who listens to its session.
    pub(crate) fn note_watch(&self, watch: Arc<SessionWatch>) {
        let _ = self.session_watch.set(watch);
        // It may have ended before this.
        if !self.is_held() {
            self.shared.renewals.remove(self);
        }
    }

    pub(crate) fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the next duty; `None` once the hold has ended.
    fn next_duty(&self, duties: &Duties) -> Option<BootInstant> {
        if !self.is_held() {
            return Some(duties.release_ends).filter(|due| *due < BootInstant::NEVER);
        }
        let renewal = if duties.renewals > 0 { BootInstant::NEVER } else { duties.next_renewal };
        let near = if duties.near_told { BootInstant::NEVER } else { self.near_expiry() };
        Some(renewal.min(near).min(self.valid_until()))
    }

    /// The number of the hold: its address. In a simulation it comes from the seed, because addresses differ between two
    /// runs.
    pub(super) fn number(&self) -> usize {
        if !is_simulated() {
            return std::ptr::from_ref(self) as usize;
        }
        let owner = u128::from_le_bytes(*self.hold.claim.owner.as_bytes()) as usize;
        // A hold that is passed on keeps its owner.
        owner ^ self.hold.token.map_or(0, |token| token.get() as usize)
    }
}
