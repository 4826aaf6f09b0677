//! Bounds what is undone later: how much may be pending, and how many requests may run.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The most requests that run at a time. The others wait.
const MAX_RUNNING: usize = 1024;

/// The most tasks that wait or run. Beyond this, a lease that ends by itself is left to end.
const MAX_PENDING: usize = 65_536;

/// The counters of what is undone later.
pub(super) struct UndoLimits {
    count: AtomicUsize,
    running: Semaphore,
}

impl UndoLimits {
    pub(super) fn new() -> Self {
        Self { count: AtomicUsize::new(0), running: Semaphore::new(MAX_RUNNING) }
    }

    /// Counts one more task, until [`end`](Self::end). False: there are too many, and the task's lease ends by itself.
    pub(super) fn begin(&self, ends_alone: bool) -> bool {
        let is_accepted = self.count.fetch_add(1, Ordering::AcqRel) < MAX_PENDING || !ends_alone;
        if !is_accepted {
            self.end();
        }
        is_accepted
    }

    pub(super) fn end(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until one more request may run. Never `None`, because the semaphore is not closed.
    pub(super) async fn capacity(&self) -> Option<SemaphorePermit<'_>> {
        self.running.acquire().await.ok()
    }
}
