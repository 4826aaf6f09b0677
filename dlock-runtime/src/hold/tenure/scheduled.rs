//! A hold as the renewal schedule sees it: its duties, the renewals that are under way, and who listens to its session.

use std::sync::{Arc, MutexGuard, PoisonError};

use dlock_contract::BootInstant;

use super::Tenure;
use crate::hold::release::release_bound;
use crate::hold::renewal_schedule::{Duties, Scheduled};
use crate::hold::session_watch::SessionWatch;
use crate::queue::TAKEN_UP_WITHIN;

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
    pub(crate) fn note_watch(&self, watch: Arc<SessionWatch<Self>>) {
        let _ = self.session_watch.set(watch);
        // It may have ended before this.
        if !self.is_held() {
            self.shared.renewals.remove(self);
        }
    }
}

impl Scheduled for Tenure {
    fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_duty(&self, duties: &Duties) -> Option<BootInstant> {
        if !self.is_held() {
            return Some(duties.release_ends).filter(|due| *due < BootInstant::NEVER);
        }
        let renewal = if duties.renewals > 0 { BootInstant::NEVER } else { duties.next_renewal };
        let near = if duties.near_told { BootInstant::NEVER } else { self.near_expiry() };
        Some(renewal.min(near).min(self.valid_until()))
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn number(&self) -> usize {
        let owner = u128::from_le_bytes(*self.hold.claim.owner.as_bytes()) as usize;
        // A hold that is passed on keeps its owner.
        owner ^ self.hold.token.map_or(0, |token| token.get() as usize)
    }

    fn session_watch(&self) -> Option<&SessionWatch<Self>> {
        self.session_watch.get().map(|watch| &**watch)
    }
}
