//! A hold as the renewal schedule sees it: its duties, the renewals that are under way, and who listens to its session.

use std::sync::{Arc, MutexGuard, PoisonError};

use dlock_contract::BootInstant;

use super::Tenure;
use crate::hold::renewal_schedule::{Duties, Scheduled};
use crate::hold::session_watch::SessionWatch;

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

    /// Notes who listens to its session.
    pub(crate) fn is_watched_by(&self, watch: Arc<SessionWatch<Self>>) {
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
        let renewal = if duties.renewals > 0 { BootInstant::NEVER } else { duties.next_renewal };
        let near = if duties.near_told { BootInstant::NEVER } else { self.near_expiry() };
        Some(renewal.min(near).min(self.valid_until())).filter(|_| self.is_held())
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn session_watch(&self) -> Option<&SessionWatch<Self>> {
        self.session_watch.get().map(|watch| &**watch)
    }
}
