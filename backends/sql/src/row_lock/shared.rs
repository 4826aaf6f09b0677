//! The state that all requests of a store use.

use std::sync::Arc;

use dlock_contract::Result;

use super::dialect::RowDialect;
use super::monitor::RowMonitor;
use super::sessions::RowSessions;
use super::statements::RowStatements;
use crate::connection::answer::answered;
use crate::connection::pending_attempts::PendingAttempts;
use crate::connection::pool::Pool;
use crate::connection::session::StoreContext;
use crate::tables::row_table::{RowKind, RowTable};
use crate::ways::Ways;

/// The parts of the store that waiters share. A waiter outlives its borrow of the store.
pub(super) struct RowShared<D: RowDialect> {
    pub(super) context: Arc<StoreContext<D>>,
    pub(super) statements: Arc<RowStatements>,
    pub(super) table: RowTable,
    pub(super) kind: RowKind,
    pub(super) ways: Arc<Ways>,
    pub(super) pending_attempts: Arc<PendingAttempts>,
    pub(super) sessions: Arc<RowSessions<D>>,
    /// For records: each statement is a transaction of its own.
    pub(super) pool: Pool<D>,
    pub(super) monitor: Arc<RowMonitor<D>>,
}

impl<D: RowDialect> RowShared<D> {
    pub(super) async fn bounded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        answered(&self.context.clock, work).await
    }
}

impl<D: RowDialect> std::fmt::Debug for RowShared<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowLock")
            .field("dialect", &self.context.dialect)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
