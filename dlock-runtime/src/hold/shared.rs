//! The parts that all holds of a registry share: their begin and end, the wait of a shutdown, and the holds that are left to
//! their leases.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::{Backend, BootInstant};
use dlock_store::Clock;

use crate::events::observe::Events;
use crate::events::shutdown::ShutdownSignal;
use crate::hold::store::Store;
use crate::hold::tenure::{RenewalSchedule, Shared, Tenure};

impl Shared {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            renewals: Arc::new(RenewalSchedule::new(clock)),
            events: Arc::new(Events::new(clock)),
            jobs: Arc::default(),
            cohorts: Arc::default(),
            shutdown: ShutdownSignal::default(),
            left_to_lease: Mutex::default(),
        }
    }

    /// A store of this registry.
    pub(crate) fn store(&self, name: &str, backend: Arc<dyn Backend>) -> Arc<Store> {
        Arc::new(Store::new(name, backend, &self.clock, &self.jobs, &self.events))
    }

    /// Waits until `done` is true, but not beyond `end`. It polls, because a signal at the end of each hold and job
    /// would cost every call something. For a shutdown, polling is enough.
    pub(crate) async fn until(&self, end: BootInstant, done: impl Fn() -> bool) {
        while self.clock.now() < end && !done() {
            let pause = self.clock.sleep_until(self.clock.now().after(Duration::from_millis(5)).min(end));
            #[cfg(feature = "testing")]
            if self.clock.is_of_kit() {
                // A test that does not move its clock would wait for ever.
                let Ok(()) = self.clock.unless_it_stands(pause).await else { return };
                continue;
            }
            pause.await;
        }
    }

    pub(crate) fn leave_to_lease(&self, hold: &Arc<Tenure>) {
        let mut left = self.left_to_lease.lock().unwrap_or_else(PoisonError::into_inner);
        // Only when it is full, so that many losses at once stay cheap.
        if left.len() == left.capacity() {
            left.retain(|hold| hold.strong_count() > 0);
        }
        left.push(Arc::downgrade(hold));
    }

    pub(crate) fn left_to_lease(&self) -> Vec<Arc<Tenure>> {
        let left = self.left_to_lease.lock().unwrap_or_else(PoisonError::into_inner);
        left.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.renewals.stopped.store(true, Ordering::Release);
        self.renewals.earlier.notify_one();
    }
}
