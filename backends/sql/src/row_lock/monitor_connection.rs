//! Questions about the sessions of holds, and their ends, over the monitor's own connection. It knows no holds.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Result};

use super::dialect::RowDialect;
use crate::connection::session::StoreContext;
use crate::dialect::{MarkedSession, SessionMark, Value};
use crate::session_hold::monitor_connection::{MonitorConnection, Request};
use crate::tables::words::Statement;

/// The pause before the end of a session is asked for again.
const END_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The monitor's own connection.
pub(super) struct RowMonitorConnection<D: RowDialect> {
    context: Arc<StoreContext<D>>,
    connection: MonitorConnection<D>,
}

impl<D: RowDialect> RowMonitorConnection<D> {
    /// One that was opened just now.
    pub(super) fn new(context: &Arc<StoreContext<D>>, conn: D::Conn, server: String) -> Self {
        let connection =
            MonitorConnection::new(&context.clock, |dialect: &D| Box::pin(dialect.connect()), conn, server);
        Self { context: context.clone(), connection }
    }

    /// Ends a session of this server, if it is still the same one. False if another server answers, as after a failover.
    pub(super) async fn kill(&self, session: &SessionMark, of: &Arc<str>) -> Result<bool> {
        match self.ask(session, |dialect, conn, session| Box::pin(dialect.end_marked(conn, session))).await? {
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
        let about = (look, name, id);
        let killing = self.ask(&about, |dialect, conn, (look, name, id)| {
            Box::pin(async move {
                let living = dialect.run(conn, look, &[Value::Text(name)]).await?.rows;
                let its = living.iter().find(|row| row.get(1).is_some_and(|hold| hold.text() == *id));
                match its.and_then(|row| row.get(4)?.int()) {
                    Some(session) => dialect.kill(conn, session).await,
                    None => Ok(()),
                }
            })
        });
        killing.await.map(drop)
    }

    /// Also returns the id of the server that has answered.
    pub(super) async fn ask<Q: Sync + ?Sized, T>(&self, about: &Q, request: Request<D, Q, T>) -> Result<(T, String)> {
        let asking = self.connection.ask(&self.context.dialect, "answer the store's monitor", about, request);
        asking.await.map(|(answer, answering)| (answer, answering.server))
    }

    /// Ends the monitor's connection.
    pub(super) async fn close(&self) {
        self.connection.close(&self.context.dialect).await;
    }
}
