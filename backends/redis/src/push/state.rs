//! The state that the pushes and their listener share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::cluster::nodes::Nodes;
use crate::layout::slots::Slot;

/// Numbers the connections on which pushes arrive.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) count: AtomicU64,
    /// The last connection that the server did not count among its listeners.
    pub(crate) unheard: watch::Sender<u64>,
}

impl Opened {
    pub(crate) fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The connections to a cluster's servers on which pushes arrive, and the slots from which they arrive.
#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) nodes: Option<Arc<Nodes>>,
    pub(crate) subscribed: HashSet<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushState {
    Opening,
    Up,
    Down,
}

pub(crate) fn lock(slots: &Mutex<Slots>) -> std::sync::MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}
