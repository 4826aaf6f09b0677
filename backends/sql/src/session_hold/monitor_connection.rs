//! The connection over which a store asks about the sessions of its holds, and ends them. It knows no holds.

use std::time::Duration;

use dlock_contract::{BootInstant, Error, Result};
use dlock_store::Clock;
use futures::future::BoxFuture;

use crate::connection::closed::Closed;
use crate::connection::misread::unless_misread;
use crate::connection::session::refused;
use crate::dialect::Dialect;

/// How long one question may take, connecting included.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects, and returns the id of the server too, if the answers are compared with it.
type Connect<D> = fn(&D) -> BoxFuture<'_, Result<(<D as Dialect>::Conn, String)>>;

/// A request, which captures nothing, because it may be sent twice.
pub(crate) type Request<D, Q, T> =
    for<'a> fn(&'a D, &'a mut <D as Dialect>::Conn, &'a Q) -> BoxFuture<'a, sqlx::Result<T>>;

/// The monitor's own connection.
pub(crate) struct MonitorConnection<D: Dialect> {
    clock: Clock,
    connect: Connect<D>,
    /// Between two questions. A question takes it, so one that is dropped closes the connection.
    open: tokio::sync::Mutex<Option<OpenConnection<D>>>,
    closed: Closed,
}

struct OpenConnection<D: Dialect> {
    conn: D::Conn,
    answering: Answering,
}

/// The server that answers.
#[derive(Clone, Debug)]
pub(crate) struct Answering {
    pub(crate) server: String,
    /// When the connection was opened. The server has not restarted since then.
    pub(crate) opened: BootInstant,
}

impl<D: Dialect> MonitorConnection<D> {
    /// One that was opened just now.
    pub(crate) fn new(clock: &Clock, connect: Connect<D>, conn: D::Conn, server: String) -> Self {
        let open = OpenConnection { conn, answering: Answering { server, opened: clock.now() } };
        Self { clock: clock.clone(), connect, open: tokio::sync::Mutex::new(Some(open)), closed: Closed::default() }
    }

    /// Asks over the open connection, or over a new one if it has ended meanwhile. The request gets what it is `about`. An error
    /// says that the server did not do `this` in time.
    pub(crate) async fn ask<Q: Sync + ?Sized, T>(
        &self,
        dialect: &D,
        this: &str,
        about: &Q,
        request: Request<D, Q, T>,
    ) -> Result<(T, Answering)> {
        let asking = unless_misread(async {
            let mut place = self.open.lock().await;
            if let Some(mut open) = place.take()
                && let Ok(answer) = request(dialect, &mut open.conn, about).await
            {
                let answering = open.answering.clone();
                *place = Some(open).filter(|_| !self.closed.is_set());
                return Ok((answer, answering));
            }
            self.closed.refuse()?;
            let (mut conn, server) = (self.connect)(dialect).await?;
            let answering = Answering { server, opened: self.clock.now() };
            let answer = request(dialect, &mut conn, about).await.map_err(|error| refused(dialect, error))?;
            let open = OpenConnection { conn, answering: answering.clone() };
            *place = Some(open).filter(|_| !self.closed.is_set());
            Ok((answer, answering))
        });
        let late = || Error::outage(format!("the server did not {this} within {LOOK_TIMEOUT:?}"));
        self.clock.timeout_at(self.clock.now().after(LOOK_TIMEOUT), asking).await.ok_or_else(late).flatten()
    }

    /// Ends the connection, and opens none any more.
    pub(crate) async fn close(&self, dialect: &D) {
        self.closed.set();
        let closing = async {
            if let Some(open) = self.open.lock().await.take() {
                dialect.close(open.conn).await;
            }
        };
        let _ = self.clock.timeout_at(self.clock.now().after(LOOK_TIMEOUT), closing).await;
    }
}
