//! A store under test.

use std::any::Any;
use std::sync::Arc;

use dlock_contract::{Backend, Hold, LockKey, Result};
use dlock_store::Clock;
use futures::future::BoxFuture;

/// A store under test: opens it as another process would, and reads and changes it without the backend.
///
/// A method returns `None` if it is not possible for this store. The cases that need it are then
/// [`Outcome::Skipped`](crate::Outcome::Skipped): they are visible, and the report is not clean.
pub trait Store: Send + Sync {
    /// The store's name in the report.
    fn name(&self) -> String;

    /// Opens another client of the same store with its own connections, as another process would.
    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;

    /// Lists all entries that the store still has for that key, one line each: the lock, places in the queue. The
    /// fencing counter is meant to stay and is left out. Asks the *store*, not the backend.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Takes the lock away from its holder as an operator would: deletes the record, or kills the session.
    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = key;
        None
    }

    /// Does work inside of a hold, as a body would: something that the hold's end makes final or undoes.
    fn work<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = hold;
        None
    }

    /// Whether the work of that hold is final. Asks the *store*, not the backend.
    fn is_final<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<bool>>> {
        let _ = hold;
        None
    }

    /// Makes the store unreachable for all clients until the returned value is dropped.
    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        let _ = outage;
        None
    }

    /// Opens a client that reaches only a part of the store and still gets locks: some of its servers, or one of the stores
    /// that it is made of. `None` if the store has one part, or needs all of them.
    fn open_to_a_part(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let _ = clock;
        None
    }

    /// Opens a client with other settings than [`Self::open`]: those that may differ between the processes that share the
    /// locks, such as limits and guards. `None` if there are none.
    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let _ = clock;
        None
    }

    /// Opens a client that would lock the same keys in another way, for instance by names instead of rows. Such a client must
    /// get no lock of a namespace that is locked in this way. `None` if there is one way.
    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let _ = clock;
        None
    }

    /// Kills the store as `kill -9` does, and starts it again.
    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }

    /// Whether the store lives inside this process. Then it cannot be cut off and does not outlive its clients, so the
    /// cases about that do not apply.
    fn in_process(&self) -> bool {
        false
    }
}

/// How a store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections break, and new ones are refused.
    Refused,
    /// Connections stay open, and no request gets an answer.
    Silent,
    /// Requests arrive and are done. In place of the answer the connection breaks.
    AnswerLost,
    /// Requests arrive and are done. Connections stay open, and no answer comes back.
    AnswerSilent,
    /// Requests over the connections that are open now arrive when the outage ends, and not before. New connections work.
    Late,
}
