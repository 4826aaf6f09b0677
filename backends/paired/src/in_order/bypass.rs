//! Remembers that a first store is down which may be passed over. No call waits for it then: our thread asks it now and then
//! whether it is back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::Owner;
use dlock_contract::engine::background;

use crate::in_order::InOrder;

/// Between two questions whether the store is back.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time that such a question may take.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// Whether the first store is down, and who stands in its line.
#[derive(Debug, Default)]
pub(super) struct Bypass {
    down: AtomicBool,
    /// The claims that took a place in its line, and neither came through it nor past it yet.
    places: Mutex<HashSet<Owner>>,
}

impl Bypass {
    /// A claim has a place in the line of the first store.
    pub(super) fn note_place(&self, owner: Owner) {
        self.lock().insert(owner);
    }

    /// Whether the claim had a place there. From now on somebody else knows it.
    pub(super) fn forget_place(&self, owner: &Owner) -> bool {
        self.lock().remove(owner)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Owner>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InOrder {
    /// Whether the first store is down, and is passed over for that.
    pub(super) fn first_is_passed_over(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| bypass.down.load(Ordering::Acquire))
    }

    /// From now on the first store is passed over, until it says that it takes locks.
    pub(super) fn first_is_down(self: &Arc<Self>) {
        let Some(bypass) = &self.bypass else { return };
        let Ok(background) = background() else { return };
        if bypass.down.swap(true, Ordering::AcqRel) {
            return;
        }
        let (stores, clock) = (Arc::downgrade(self), self.clock.clone());
        background.spawn(async move {
            loop {
                clock.sleep_until(clock.now().after(PAUSE)).await;
                let Some(stores) = stores.upgrade() else { return };
                let by = clock.now().after(LONGEST_REQUEST);
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
