//! The connection over which a store asks about the sessions of its holds, and ends them. It knows no holds.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, Result};
use futures::future::BoxFuture;

use super::dialect::RowDialect;
use crate::connection::misread::unless_misread;
use crate::connection::session::{StoreContext, refused};
use crate::dialect::Value;
use crate::dialect::{MarkedSession, SessionMark};
use crate::tables::words::Statement;

/// How long one question may take, connecting included.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the end of a session is asked for again.
const END_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The monitor's own connection.
pub(super) struct MonitorConnection<D: RowDialect> {
    context: Arc<StoreContext<D>>,
    /// Between two questions. A question takes it, so one that is dropped closes the connection.
    open: tokio::sync::Mutex<Option<OpenConnection<D>>>,
}

struct OpenConnection<D: RowDialect> {
    conn: D::Conn,
    server: String,
}

impl<D: RowDialect> MonitorConnection<D> {
    /// One that was opened just now.
    pub(super) fn new(context: &Arc<StoreContext<D>>, conn: D::Conn, server: String) -> Self {
        Self { context: context.clone(), open: tokio::sync::Mutex::new(Some(OpenConnection { conn, server })) }
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
            let mut place = self.open.lock().await;
            if let Some(mut connection) = place.take()
                && let Ok(answer) = request(dialect, &mut connection.conn, &connection.server).await
            {
                let server = connection.server.clone();
                *place = Some(connection);
                return Ok((answer, server));
            }
            let (mut conn, server) = dialect.connect().await?;
            let answer = request(dialect, &mut conn, &server).await.map_err(|error| refused(dialect, error))?;
            *place = Some(OpenConnection { conn, server: server.clone() });
            Ok((answer, server))
        });
        let late = || Error::outage(format!("the server did not answer the store's monitor within {LOOK_TIMEOUT:?}"));
        clock.timeout_at(clock.now().after(LOOK_TIMEOUT), asking).await.ok_or_else(late).flatten()
    }

    /// Ends the monitor's connection.
    pub(super) async fn close(&self) {
        let closing = async {
            if let Some(connection) = self.open.lock().await.take() {
                self.context.dialect.close(connection.conn).await;
            }
        };
        let clock = &self.context.clock;
        let _ = clock.timeout_at(clock.now().after(LOOK_TIMEOUT), closing).await;
    }
}
