//! Bypasses a first store that is down. No call waits for it then. Our thread asks it once a second whether it is back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{Backend, Owner};
use dlock_store::{Clock, background};

/// The pause between two probes of a store that is down.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The timeout of a probe.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the first store is down, and which claims may have a place in its queue.
pub(super) struct Bypass {
    first: Arc<dyn Backend>,
    clock: Clock,
    down: AtomicBool,
    closed: AtomicBool,
    /// The claims that joined the first store's queue, and were neither admitted nor bypassed it yet.
    places: Mutex<HashSet<Owner>>,
}

impl Bypass {
    pub(super) fn new(first: Arc<dyn Backend>, clock: &Clock) -> Arc<Self> {
        let (down, closed, places) = Default::default();
        Arc::new(Self { first, clock: clock.clone(), down, closed, places })
    }

    /// Whether the first store is down and bypassed.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// Bypasses the first store from now on, until a probe finds that it grants locks again.
    pub(super) fn mark_down(self: &Arc<Self>) {
        let Ok(background) = background() else { return };
        if self.down.swap(true, Ordering::AcqRel) {
            return;
        }
        let (bypass, clock) = (Arc::downgrade(self), self.clock.clone());
        background.spawn(async move {
            loop {
                clock.sleep_until(clock.now().after(PROBE_PAUSE)).await;
                let Some(bypass) = bypass.upgrade().filter(|bypass| !bypass.closed.load(Ordering::Acquire)) else {
                    return;
                };
                let by = clock.now().after(REQUEST_TIMEOUT);
                let is_back = matches!(clock.timeout_at(by, bypass.first.ready()).await, Some(Ok(_)));
                if is_back {
                    bypass.down.store(false, Ordering::Release);
                }
                if is_back {
                    return;
                }
            }
        });
    }

    /// Ends the probes.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Records that a claim has a place in the first store's queue.
    pub(super) fn note_place(&self, owner: Owner) {
        self.lock().insert(owner);
    }

    /// Removes the claim. Returns whether it had a place in the first store's queue.
    pub(super) fn forget_place(&self, owner: &Owner) -> bool {
        self.lock().remove(owner)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Owner>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
