//! The parts of a registry that all of its holds share.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Clock};

use crate::events::observe::Events;
use crate::events::shutdown::{Jobs, ShutdownSignal};
use crate::hold::renewal_schedule::RenewalSchedule;

/// What every hold of a registry needs.
///
/// Aligned, as all that the threads of a program share: what they read would else lie beside what they all write, such as
/// the counter of its holders, and come from another processor's cache each time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared<H> {
    pub(crate) clock: Clock,
    pub(crate) renewals: Arc<RenewalSchedule<H>>,
    pub(crate) events: Arc<Events>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) shutdown: ShutdownSignal,
}

impl<H> Shared<H> {
    /// Waits until `done`, but not beyond `end`. Holds and jobs end without telling anybody, which would cost every
    /// call something; looking now and then is good enough for a shutdown.
    pub(crate) async fn until(&self, end: BootInstant, done: impl Fn() -> bool) {
        while self.clock.now() < end && !done() {
            let pause = self.clock.sleep_until(self.clock.now().after(Duration::from_millis(5)).min(end));
            #[cfg(feature = "testing")]
            if self.clock.is_of_kit() {
                // Where a test does not move its clock, this has an end all the same.
                let Ok(()) = self.clock.unless_it_stands(pause).await else { return };
                continue;
            }
            pause.await;
        }
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
            events: Arc::default(),
            jobs: Arc::default(),
            shutdown: ShutdownSignal::default(),
        }
    }
}
