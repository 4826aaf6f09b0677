//! A store under test.

use std::any::Any;
use std::sync::Arc;

use dlock_contract::{Backend, Clock, LockKey, Result};
use futures::future::BoxFuture;

/// A store under test: how to reach it as another process would, and how to look behind the backend's back.
///
/// A method returns `None` for an ability that the store lacks, and the cases that need it are [`Outcome::Skipped`](crate::Outcome::Skipped): visible, and a failure for
/// whoever demands a clean report.
pub trait Store: Send + Sync {
    /// The name in the report.
    fn name(&self) -> String;

    /// Another client of the same store, with connections of its own, as another process would be.
    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;

    /// Lists all that is still in the store for that key, one line for each thing: the lock, places in line. The fencing counter
    /// is meant to stay and is left out. Asks the *store*, not the backend.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Takes the lock away from its holder as an operator would: deletes the record, or kills the session.
    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = key;
        None
    }

    /// Makes the store unreachable for all clients until the returned value is dropped.
    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        let _ = outage;
        None
    }

    /// Kills the store as `kill -9` does, and starts it again.
    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }

    /// Does the store live inside this process? Then it cannot be cut off, and does not outlive its clients: the cases
    /// about that are not applicable.
    fn in_process(&self) -> bool {
        false
    }
}

/// How a store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections break, and new ones are refused.
    Refused,
    /// Connections stay, and nothing is answered.
    Silent,
}
