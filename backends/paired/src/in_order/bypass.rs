//! Bypasses a first store that is down. No call waits for it then. Our thread asks it once a second whether it is back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::Owner;
use dlock_contract::engine::background;

use crate::in_order::InOrder;

/// The pause between two probes of a store that is down.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The timeout of a probe.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the first store is down, and which claims may have a place in its queue.
#[derive(Debug, Default)]
pub(super) struct Bypass {
    down: AtomicBool,
    /// The claims that joined the first store's queue, and were neither admitted nor bypassed it yet.
    places: Mutex<HashSet<Owner>>,
}

impl Bypass {
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

impl InOrder {
    /// Whether the first store is down and bypassed.
    pub(super) fn is_first_bypassed(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| bypass.down.load(Ordering::Acquire))
    }

    /// Bypasses the first store from now on, until a probe finds that it grants locks again.
    pub(super) fn mark_first_down(self: &Arc<Self>) {
        let Some(bypass) = &self.bypass else { return };
        let Ok(background) = background() else { return };
        if bypass.down.swap(true, Ordering::AcqRel) {
            return;
        }
        let (stores, clock) = (Arc::downgrade(self), self.clock.clone());
        background.spawn(async move {
            loop {
                clock.sleep_until(clock.now().after(PROBE_PAUSE)).await;
                let Some(stores) = stores.upgrade() else { return };
                let by = clock.now().after(REQUEST_TIMEOUT);
                let is_back = matches!(clock.timeout_at(by, stores.first.ready()).await, Some(Ok(_)));
                if is_back && let Some(bypass) = &stores.bypass {
                    bypass.down.store(false, Ordering::Release);
                }
                if is_back || stores.closed.load(Ordering::Acquire) {
                    return;
                }
            }
        });
    }
}
