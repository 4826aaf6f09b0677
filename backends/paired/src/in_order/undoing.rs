//! How much is given back later, and how much of it at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// So many requests run at a time. The others wait.
const AT_ONCE: usize = 1024;

/// So many wait or run. What is beyond them ends with its ttl, if it ends by itself at all.
const MOST: usize = 65_536;

pub(super) struct Undoing {
    count: AtomicUsize,
    turns: Semaphore,
}

impl Undoing {
    pub(super) fn new() -> Self {
        Self { count: AtomicUsize::new(0), turns: Semaphore::new(AT_ONCE) }
    }

    /// Counts one more, until [`leave`](Self::leave). False: there are too many, and this one ends by itself.
    pub(super) fn enter(&self, ends_alone: bool) -> bool {
        let enters = self.count.fetch_add(1, Ordering::AcqRel) < MOST || !ends_alone;
        if !enters {
            self.leave();
        }
        enters
    }

    pub(super) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// The turn of one request. `None` never comes: the turns are not closed.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }
}
