//! The parts of a registry that all of its holds share.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::Clock;

use crate::events::observe::Events;
use crate::events::shutdown::{Jobs, ShutdownSignal};
use crate::hold::renewal_schedule::RenewalSchedule;
use crate::queue::CohortHolds;

/// The parts that every hold needs. Generic over the hold, because a hold knows this type.
///
/// Aligned, because all threads of a program share it. Otherwise the fields that they read would lie beside counters
/// that they all write, and would come from another processor's cache each time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared<H> {
    pub(crate) clock: Clock,
    pub(crate) renewals: Arc<RenewalSchedule<H>>,
    pub(crate) events: Arc<Events>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) cohorts: Arc<CohortHolds>,
    pub(crate) shutdown: ShutdownSignal,
    /// Holds that this process has declared lost while the store still had their lock, because the body may run on.
    left_to_lease: Mutex<Vec<Weak<H>>>,
}

impl<H> Shared<H> {
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
}

impl<H> Shared<H> {
    pub(crate) fn leave_to_lease(&self, hold: &Arc<H>) {
        let mut left = self.left_to_lease.lock().unwrap_or_else(PoisonError::into_inner);
        // Only when it is full, so that many losses at once stay cheap.
        if left.len() == left.capacity() {
            left.retain(|hold| hold.strong_count() > 0);
        }
        left.push(Arc::downgrade(hold));
    }

    pub(crate) fn left_to_lease(&self) -> Vec<Arc<H>> {
        let left = self.left_to_lease.lock().unwrap_or_else(PoisonError::into_inner);
        left.iter().filter_map(Weak::upgrade).collect()
    }
}

impl<H> Drop for Shared<H> {
    fn drop(&mut self) {
        self.renewals.stop();
    }
}

impl<H> Shared<H> {
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
}
