//! Remembers that a first store is down which may be passed over. No call waits for it then: our thread asks it now and then
//! whether it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_contract::engine::background;

use crate::in_order::InOrder;

/// Between two questions whether the store is back.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time that such a question may take.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// Whether the first store is down.
#[derive(Debug, Default)]
pub(super) struct Bypass {
    down: AtomicBool,
}

impl Bypass {
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }
}

impl InOrder {
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
