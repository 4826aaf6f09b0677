//! The parts that all requests of a store share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::watch;

use crate::file::{DatabaseFile, FileId};
use crate::index::Index;
use crate::look::Looks;
use crate::time::Time;
use crate::wakes::Wakes;

/// The parts that all requests of a store share: the file, the clock of leases, and the wakes of waiters.
#[derive(Debug)]
pub(super) struct StoreContext {
    pub(super) database: Arc<DatabaseFile>,
    pub(super) looks: Looks<FileId>,
    pub(super) indexes: Looks<Index>,
    /// Changes when all connections must be closed: the index that they share is not the one at its path any more.
    pub(super) index_lost: watch::Sender<()>,
    pub(super) time: Time,
    pub(super) wakes: Wakes,
    /// Set when the store is closed. No connection is opened any more.
    pub(super) is_closed: AtomicBool,
}

impl StoreContext {
    pub(super) fn new(database: DatabaseFile, time: Time) -> Self {
        let database = Arc::new(database);
        let (looked_at, beside) = (database.clone(), database.clone());
        let wakes = Wakes::new(&database, time.clock());
        let (looks, indexes) = (Looks::new(move || looked_at.look()), Looks::new(move || Index::of(&beside)));
        let (index_lost, is_closed) = (watch::Sender::new(()), AtomicBool::new(false));
        Self { database, looks, indexes, index_lost, time, wakes, is_closed }
    }
}
