//! Asks the server, over one connection of its own, which holds still live.
//!
//! The server frees a row when its session ends, and the client library reports a broken socket only when the socket is
//! used. And while a statement of the body runs on a session, nothing else can be asked there.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Owner, Result};
use futures::future::BoxFuture;

use super::dialect::{RowDialect, RowId};
use super::held::HeldRow;
use crate::connection::misread::unless_misread;
use crate::connection::session::{StoreContext, refused};
use crate::connection::session_mark::{MarkedSession, SessionMark};
use crate::dialect::Value;
use crate::session_hold::watched_holds::WatchedHolds;
use crate::tables::row_table::RowTable;
use crate::words::Statement;

/// How old a hold's last look may be.
const MONITOR_INTERVAL: Duration = Duration::from_millis(250);
/// A hold that is younger is not asked about: most end before, and cost nothing.
const MIN_HOLD_AGE: Duration = Duration::from_millis(100);
/// Recheck interval for a hold whose connection the body is using. By then the server has answered the body's
/// statement, and its answer says why the hold has ended.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time from the end of a session until its holder hears of it, without the round trip.
pub(super) const LOSS_REPORT_LIMIT: Duration = Duration::from_millis(400);
/// How long one look may take, connecting included.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the end of a session is asked for again.
const END_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Knows the holds of a store, and watches them.
pub(super) struct RowMonitor<D: RowDialect> {
    context: Arc<StoreContext<D>>,
    table: RowTable,
    holds: WatchedHolds<HeldRow<D>>,
    /// Between two questions. A question takes it, so one that is dropped closes the connection.
    connection: tokio::sync::Mutex<Option<RowMonitorConnection<D>>>,
}

/// The monitor's own connection.
struct RowMonitorConnection<D: RowDialect> {
    conn: D::Conn,
    server: String,
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
            connection: tokio::sync::Mutex::new(Some(RowMonitorConnection { conn, server })),
        }
    }

    /// Watches the hold from now on. If its owner asks again, it gets this hold.
    pub(super) fn add(&self, held: &Arc<HeldRow<D>>) {
        self.holds.add(held.owner, held);
    }

    /// Unless the owner has another hold by now.
    pub(super) fn remove(&self, held: &HeldRow<D>) {
        self.holds.remove(&held.owner, held);
    }

    pub(super) fn held_by(&self, owner: &Owner) -> Option<Arc<HeldRow<D>>> {
        self.holds.held_by(owner)
    }

    /// Looks at the holds for as long as the store lives.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            let next = |held: &HeldRow<D>| {
                held.looked().after(if held.seems_ended() { RECHECK_INTERVAL } else { MONITOR_INTERVAL })
            };
            match self.holds.next_look(|held| held.is_watched().then(|| next(held))) {
                Some(at) => {
                    self.context.clock.sleep_until(at).await;
                    self.look_around().await;
                }
                None => self.holds.wait().await,
            }
        }
    }

    /// Looks once at all holds that are not young, and reports the ended ones to their holders.
    async fn look_around(&self) {
        let now = self.context.clock.now();
        // The question does not keep the hold alive: a dropped one is rolled back at once.
        let (due, asked): (Vec<_>, Vec<_>) = {
            let due = self.holds.find(|held| held.since.after(MIN_HOLD_AGE) <= now && held.is_watched());
            due.iter().for_each(|held| held.set_looked(now));
            due.iter().map(|held| (Arc::downgrade(held), (held.id.clone(), held.server.clone()))).unzip()
        };
        if due.is_empty() {
            return;
        }
        let seen = self.look(&asked).await;
        for (held, seen) in due.iter().zip(seen) {
            let held = held.upgrade().filter(|held| seen == TransactionStatus::Ended && held.is_watched());
            if let Some(held) = held.filter(|held| held.note_seems_ended() || !held.is_in_use()) {
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
        let (table, row) = (self.table.clone(), held.row.clone());
        let locked = self.ask(move |dialect, conn, _| {
            let (table, row) = (table.clone(), row.clone());
            Box::pin(async move { dialect.is_locked(conn, &table, &row).await })
        });
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
        let ids: Arc<[RowId]> = asked.iter().map(|(id, _)| id.clone()).collect();
        let answer = self.ask(move |dialect, conn, _| {
            let ids = ids.clone();
            Box::pin(async move { dialect.are_held(conn, &ids).await })
        });
        match answer.await {
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

    /// Ends a session of this server, if it is still the same one. False if another server answers, as after a failover.
    pub(super) async fn kill(&self, session: &SessionMark, of: &Arc<str>) -> Result<bool> {
        let session = session.clone();
        let killing = self.ask(move |dialect, conn, _| {
            let session = session.clone();
            Box::pin(async move { dialect.end_marked(conn, &session).await })
        });
        match killing.await? {
            (MarkedSession::OfAnotherAccount, server) if *server == **of => {
                self.context.collisions.note_of_another_account();
                Err(Error::outage(
                    "the session of the lock is of the account that the program had before, and this account may not end it: \
                     the server ends it when it has been silent for the ttl",
                ))
            }
            (_, server) => Ok(*server == **of),
        }
    }

    /// Ends a session that did not answer, and that may have a row locked. Asks until the server has heard of it, or until the
    /// server ends the session by itself for its silence.
    pub(super) async fn end_left(&self, session: &SessionMark, of: &Arc<str>, ttl: Duration) {
        let clock = &self.context.clock;
        let until = clock.now().after(ttl);
        while self.kill(session, of).await.is_err() && clock.now() < until {
            clock.sleep_until(clock.now().after(END_RETRY_PAUSE)).await;
        }
    }

    /// Ends the session of a hold, if the server that is asked sees it live. The record's number alone says nothing: after a
    /// failover it may be somebody else's.
    pub(super) async fn kill_holder(&self, look: &Statement, name: &str, id: &str) -> Result<()> {
        let (look, name, id) = (look.clone(), name.to_owned(), id.to_owned());
        let killing = self.ask(move |dialect, conn, _| {
            let (look, name, id) = (look.clone(), name.clone(), id.clone());
            Box::pin(async move {
                let living = dialect.run(conn, &look, &[Value::Text(&name)]).await?.rows;
                let its = living.iter().find(|row| row.get(1).is_some_and(|hold| hold.text() == id));
                match its.and_then(|row| row.get(4)?.int()) {
                    Some(session) => dialect.kill(conn, session).await,
                    None => Ok(()),
                }
            })
        });
        killing.await.map(drop)
    }

    /// Asks over the open connection, or over a new one if it has ended meanwhile. The request and its caller get the
    /// id of the server.
    pub(super) async fn ask<T, R>(&self, request: R) -> Result<(T, String)>
    where
        R: for<'a> Fn(&'a D, &'a mut D::Conn, &str) -> BoxFuture<'a, sqlx::Result<T>>,
    {
        let (clock, dialect) = (&self.context.clock, &self.context.dialect);
        let asking = unless_misread(async {
            let mut place = self.connection.lock().await;
            if let Some(mut connection) = place.take()
                && let Ok(answer) = request(dialect, &mut connection.conn, &connection.server).await
            {
                let server = connection.server.clone();
                *place = Some(connection);
                return Ok((answer, server));
            }
            let (mut conn, server) = dialect.connect().await?;
            let answer = request(dialect, &mut conn, &server).await.map_err(|error| refused(dialect, error))?;
            *place = Some(RowMonitorConnection { conn, server: server.clone() });
            Ok((answer, server))
        });
        let late = || Error::outage(format!("the server did not answer the store's monitor within {LOOK_TIMEOUT:?}"));
        clock.timeout_at(clock.now().after(LOOK_TIMEOUT), asking).await.ok_or_else(late).flatten()
    }

    /// Ends the monitor's connection.
    pub(super) async fn close(&self) {
        let closing = async {
            if let Some(connection) = self.connection.lock().await.take() {
                self.context.dialect.close(connection.conn).await;
            }
        };
        let clock = &self.context.clock;
        let _ = clock.timeout_at(clock.now().after(LOOK_TIMEOUT), closing).await;
    }
}
