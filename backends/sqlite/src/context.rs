//! The parts that all requests of a store share.

use std::sync::Arc;

use crate::file::{DatabaseFile, FileId};
use crate::look::Looks;
use crate::time::Time;
use crate::wakes::Wakes;

/// The parts that all requests of a store share: the file, the clock of leases, and the wakes of waiters.
#[derive(Debug)]
pub(super) struct StoreContext {
    pub(super) database: Arc<DatabaseFile>,
    pub(super) looks: Looks<FileId>,
    pub(super) time: Time,
    pub(super) wakes: Wakes,
}

impl StoreContext {
    pub(super) fn new(database: DatabaseFile, time: Time) -> Self {
        let database = Arc::new(database);
        let looked_at = database.clone();
        let wakes = Wakes::new(&database, time.clock());
        Self { database, looks: Looks::new(move || looked_at.look()), time, wakes }
    }
}
