//! Undoes what callers leave that are not polled, also while no other caller of this process wants their keys.
//!
//! Exists for stores whose leases do not end alone: there a grant that nobody takes would keep the lock from all processes
//! for as long as this one lives. Elsewhere it ends by its ttl.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_store::background;
use dlock_store::engine::simulation::planted;

use crate::hold::abandon::abandon_later;
use crate::hold::store::Store;
use crate::queue::{Overdue, Won};

const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Watches the callers of a store, if that is needed, until none of them asks or waits.
pub(super) fn watch(store: &Arc<Store>) {
    if store.backend.profile().expires_alone
        || planted("nobody undoes a grant that is not taken")
        || store.is_watched.load(Ordering::Relaxed)
        || store.is_watched.swap(true, Ordering::AcqRel)
    {
        return;
    }
    if let Ok(background) = background() {
        background.spawn(look_now_and_then(Arc::downgrade(store)));
    }
}

async fn look_now_and_then(store: Weak<Store>) {
    let Some(clock) = store.upgrade().map(|store| store.clock.clone()) else { return };
    loop {
        clock.sleep_until(clock.now().after(LOOK_INTERVAL)).await;
        let Some(store) = store.upgrade() else { return };
        for key in store.queue.wanted_keys() {
            undo(&store, store.queue.pass_over(&key, clock.now()));
        }
        if store.queue.wanted_keys().is_empty() {
            store.is_watched.store(false, Ordering::Release);
            // A caller that came in between may have relied on this task.
            if store.queue.wanted_keys().is_empty() || store.is_watched.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

/// Undoes what callers have left that are not polled. The next caller gets the turn after that.
pub(super) fn undo(store: &Arc<Store>, overdue: Overdue) {
    for (claim, turn) in overdue.claims {
        abandon_later(store, claim, Box::new(turn));
    }
    if let Some((handover, turn)) = overdue.handover {
        handover.give_back(Box::new(turn));
    }
    overdue.won.iter().filter_map(Weak::upgrade).for_each(Won::give_back);
}
