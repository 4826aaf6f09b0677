//! The servers of a cluster that were asked for rights, version and eviction. If one of them was down when the store was
//! opened, it is asked before its first grant.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The servers that have answered, and whether all had.
#[derive(Default)]
pub(crate) struct Asked {
    servers: Mutex<HashSet<String>>,
    all: AtomicBool,
}

impl Asked {
    /// Whether this server need not be asked any more. A server that comes after all were asked is not asked.
    pub(crate) fn has(&self, server: &str) -> bool {
        self.are_all() || self.servers().contains(server)
    }

    pub(crate) fn are_all(&self) -> bool {
        self.all.load(Ordering::Acquire)
    }

    pub(crate) fn note(&self, server: String) {
        self.servers().insert(server);
    }

    pub(crate) fn note_all(&self) {
        self.all.store(true, Ordering::Release);
    }

    fn servers(&self) -> MutexGuard<'_, HashSet<String>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
