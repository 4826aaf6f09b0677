//! Counts how often statements of a store met others at the same rows, since the store was opened, and notes whether a session
//! could not be ended. `ready()` reports both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dlock_contract::Health;

use crate::dialect::Refusal;

const OF_ANOTHER_ACCOUNT: &str = "since the store was opened, a session of the account that the program had before was left in the \
    middle of a statement, and this account may not end it, so a lock may stay taken until its ttl is over: end the sessions of \
    the former account, or give this account the right to see and to end them";

/// The counters of one store.
#[derive(Debug, Default)]
pub(crate) struct Collisions {
    undone: AtomicU64,
    row_locked: AtomicU64,
    is_left_to_server: AtomicBool,
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

    /// A session of another account was left in the middle of a statement, and only the server can end it.
    pub(crate) fn note_of_another_account(&self) {
        self.is_left_to_server.store(true, Ordering::Relaxed);
    }

    /// The store's health with the counters.
    pub(crate) fn told_in(&self, health: Health) -> Health {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let health = match self.is_left_to_server.load(Ordering::Relaxed) {
            true => health.finding(OF_ANOTHER_ACCOUNT),
            false => health,
        };
        health
            .count("deadlocks and serialization failures", count(&self.undone))
            .count("waits for a row that ended without it", count(&self.row_locked))
    }
}
