//! Counts how often statements of a store met others at the same rows, since the store was opened. `ready()` reports
//! the counts.

use std::sync::atomic::{AtomicU64, Ordering};

use dlock_contract::Health;

use crate::dialect::Refusal;

/// The counters of one store.
#[derive(Debug, Default)]
pub(crate) struct Collisions {
    undone: AtomicU64,
    row_locked: AtomicU64,
}

impl Collisions {
    /// The server has refused a statement.
    pub(crate) fn note(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Undone => &self.undone,
            Refusal::RowLocked => &self.row_locked,
            Refusal::Duplicate | Refusal::SessionEnded | Refusal::Other => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The store's health with the counters.
    pub(crate) fn told_in(&self, health: Health) -> Health {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        health
            .count("deadlocks and serialization failures", count(&self.undone))
            .count("waits for a row that ended without it", count(&self.row_locked))
    }
}
