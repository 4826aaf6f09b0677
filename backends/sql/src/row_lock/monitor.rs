//! Asks the server, over one connection of its own, which holds still live.
//!
//! The server frees a row when its session ends, and the client library reports a broken socket only when the socket is
//! used. And while a statement of the body runs on a session, nothing else can be asked there.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::{RowDialect, RowId};
use super::held::HeldRow;
use super::life::Life;
use super::monitor_connection::RowMonitorConnection;
use crate::connection::session::StoreContext;
use crate::session_hold::watched_holds::{LOOK_INTERVAL, WatchedHolds};
use crate::tables::row_table::RowTable;

/// Recheck interval for a hold whose connection the body is using. By then the server has answered the body's
/// statement, and its answer says why the hold has ended.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time from the end of a session until its holder hears of it, without the round trip.
pub(super) const LOSS_REPORT_LIMIT: Duration = Duration::from_millis(400);

/// Knows the holds of a store, and watches them.
pub(super) struct RowMonitor<D: RowDialect> {
    context: Arc<StoreContext<D>>,
    table: RowTable,
    pub(super) holds: WatchedHolds<HeldRow<D>>,
    pub(super) connection: Arc<RowMonitorConnection<D>>,
}

/// The monitor's knowledge of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionStatus {
    Held,
    Ended,
    Unknown,
}

impl<D: RowDialect> RowMonitor<D> {
    /// A monitor with a connection that was opened just now.
    pub(super) fn new(context: &Arc<StoreContext<D>>, table: &RowTable, conn: D::Conn, server: String) -> Self {
        Self {
            context: context.clone(),
            table: table.clone(),
            holds: WatchedHolds::new(),
            connection: Arc::new(RowMonitorConnection::new(context, conn, server)),
        }
    }

    /// Looks at the holds for as long as the store lives.
    pub(super) async fn watch(self: Arc<Self>) {
        let interval = |held: &HeldRow<D>| match held.life() {
            Life::Held => Some(LOOK_INTERVAL),
            Life::SeemsEnded => Some(RECHECK_INTERVAL),
            _ => None,
        };
        self.holds.watch(&self.context.clock, interval, || self.look_around()).await;
    }

    /// Looks once at all holds that are not young, and reports the ended ones to their holders.
    async fn look_around(&self) {
        let now = self.context.clock.now();
        // The question does not keep the hold alive: a dropped one is rolled back at once.
        let (due, asked): (Vec<_>, Vec<_>) = {
            let due = self.holds.take_due(now, HeldRow::is_watched);
            due.iter().map(|held| (Arc::downgrade(held), (held.id.clone(), held.server.clone()))).unzip()
        };
        if due.is_empty() {
            return;
        }
        let seen = self.look(&asked).await;
        for (held, seen) in due.iter().zip(seen) {
            let held = held.upgrade().filter(|held| seen == TransactionStatus::Ended && held.is_watched());
            // While the body uses its session, the second look decides.
            if let Some(held) =
                held.filter(|held| held.advance(Life::SeemsEnded) == Life::SeemsEnded || !held.is_in_use())
            {
                held.end();
            }
        }
    }

    /// Whether the hold's session lived and its row was locked when this was called, or later.
    pub(super) async fn sees(&self, held: &HeldRow<D>) -> TransactionStatus {
        match self.sees_session(held).await {
            TransactionStatus::Held => {}
            seen => return seen,
        }
        let about = (&self.table, &held.row);
        let locked =
            self.connection.ask(&about, |dialect, conn, (table, row)| Box::pin(dialect.is_locked(conn, table, row)));
        match locked.await {
            Ok((false, _)) => TransactionStatus::Ended,
            // Without an answer, as while the table's definition is being changed, only the record of a later holder could say more.
            Ok((true, _)) | Err(_) => TransactionStatus::Held,
        }
    }

    /// Whether the hold's session lived.
    pub(super) async fn sees_session(&self, held: &HeldRow<D>) -> TransactionStatus {
        let seen = self.look(&[(held.id.clone(), held.server.clone())]).await;
        seen.first().copied().unwrap_or(TransactionStatus::Unknown)
    }

    async fn look(&self, asked: &[(RowId, Arc<str>)]) -> Vec<TransactionStatus> {
        let ids: Vec<_> = asked.iter().map(|(id, _)| id.clone()).collect();
        match self.connection.ask(&ids, |dialect, conn, ids| Box::pin(dialect.are_held(conn, ids))).await {
            Ok((held, server)) if held.len() == asked.len() => asked
                .iter()
                .zip(held)
                .map(|((_, of), held)| match held {
                    // After a failover another server answers, which may give the same numbers to others.
                    _ if **of != server => TransactionStatus::Unknown,
                    true => TransactionStatus::Held,
                    false => TransactionStatus::Ended,
                })
                .collect(),
            _ => vec![TransactionStatus::Unknown; asked.len()],
        }
    }
}
