//! The renewal connection: a second connection, for renewals alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

use crate::connections::connection::Connection;

/// The first renewal that comes this long after its last use closes it. It is kept because a slow connection may be slow
/// again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The second connection. It lives on our own thread, and is opened there: a renewal may have less time than that takes.
#[derive(Default)]
pub(crate) struct RenewalConnection {
    present: Mutex<Option<Used>>,
    /// Held while the connection is opened, so that only one is.
    pub(crate) opening: tokio::sync::Mutex<()>,
    pub(crate) closed: AtomicBool,
}

pub(crate) struct Used {
    pub(crate) connection: Arc<Connection>,
    pub(crate) last: BootInstant,
}

impl RenewalConnection {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.leave();
    }

    pub(crate) fn leave(&self) {
        self.put(None);
    }

    pub(crate) fn forget(&self, now: BootInstant) {
        let is_over = self.present().as_ref().is_some_and(|used| now.since(used.last) > KEPT_FOR);
        if is_over {
            self.put(None);
        }
    }

    pub(crate) fn put(&self, used: Option<Used>) {
        let before = std::mem::replace(&mut *self.present(), used);
        // Outside of the lock: its own drop may do anything.
        drop(before);
    }

    pub(crate) fn present(&self) -> MutexGuard<'_, Option<Used>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
