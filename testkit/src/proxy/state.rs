//! The state that the connections of one proxy share.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Notify, watch};

use super::mode::Mode;

pub(super) struct State {
    pub(super) mode: watch::Sender<Mode>,
    pub(super) cuts: watch::Sender<u64>,
    pub(super) connections: AtomicUsize,
    pub(super) swallowing: AtomicUsize,
    pub(super) sent: AtomicUsize,
    pub(super) replies: AtomicUsize,
    /// To the server and to the clients.
    pub(super) bytes: [AtomicUsize; 2],
    pub(super) lines: Mutex<Vec<Weak<Line>>>,
    pub(super) keeping: Mutex<Vec<Arc<Line>>>,
}

/// One connection's way to the server, as far as [`keep`](super::Proxy::keep) is concerned.
#[derive(Default)]
pub(super) struct Line {
    /// The bytes that came since; `None` if nothing is kept.
    pub(super) kept: Mutex<Option<Vec<u8>>>,
    /// The bytes that may go on.
    pub(super) delivered: Mutex<Vec<u8>>,
    pub(super) news: Notify,
    /// Whether both sockets are closed.
    pub(super) is_over: AtomicBool,
}

impl Line {
    /// Keeps the bytes that were sent, unless they may go on.
    pub(super) fn keep(&self, bytes: &[u8]) -> bool {
        lock(&self.kept).as_mut().map(|kept| kept.extend_from_slice(bytes)).is_some()
    }

    /// Waits for the next bytes that may go on. There may be none when the last of them were delivered.
    pub(super) async fn delivered(&self) -> Vec<u8> {
        self.news.notified().await;
        self.take_delivered()
    }

    pub(super) fn take_delivered(&self) -> Vec<u8> {
        std::mem::take(&mut *lock(&self.delivered))
    }

    pub(super) fn is_kept(&self) -> bool {
        lock(&self.kept).is_some()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl State {
    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }
}
