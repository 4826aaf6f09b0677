//! The way of renewals: over the runtime's own connection, or over the renewal connection if the own one is too slow.
//!
//! The connection for renewals is opened with the store, before the first lock. If the server accepts no connection later,
//! because it is full or its password has changed, no hold is lost. If the connection ends and cannot be opened again,
//! renewals go over any connection that lives.
//!
//! Only renewals go over the renewal connection, because they need no order. An abandon must follow its request over the same
//! connection. A slow connection is not ended for one renewal: a short lease of one lock is no reason to break the requests
//! of all others.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::engine::{Place, background};
use dlock_contract::{Error, ErrorKind, Origin, Result};
use futures::TryFutureExt;
use tokio::sync::oneshot;

use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::connections::renewal_connection::Used;

/// A server may be slow for a moment, however short a lease is.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

const MOST_PATIENCE: Duration = Duration::from_secs(2);

/// After so long without an answer the next renewal of a lease goes another way: once more can come in time.
fn patience(ttl: Duration) -> Duration {
    (ttl / 4).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

impl Connections {
    /// The connection for renewals of holds, the shortest of which has this ttl.
    pub(crate) async fn for_renewals(self: &Arc<Self>, shortest: Duration) -> Result<Arc<Connection>> {
        let patience = patience(shortest);
        // `WAIT` delays all requests behind it.
        let waits = self.target.settings.wait_replicas > 0 && self.cluster().is_none();
        let own = Origin::here().and_then(|here| self.of(here));
        if !waits && !own.is_some_and(|own| own.is_silent(patience, &self.clock)) {
            self.renewal_connection.forget(self.clock.now());
            return self.ordinary(patience).await;
        }
        // The server itself may be slow, and accept no connection.
        let limit = self.clock.now().after(patience / 2);
        match self.clock.timeout_at(limit, Box::pin(self.renewal_connection_within(patience))).await {
            Some(Ok(beside)) => Ok(beside),
            _ => self.ordinary(patience).await,
        }
    }

    /// Opens the connection of the renewals to come.
    ///
    /// # Errors
    /// If it cannot be opened: holds of such a store could not be relied on.
    pub async fn open_for_renewals(self: &Arc<Self>) -> Result<()> {
        let connections = self.clone();
        let waits = self.target.settings.wait_replicas > 0 && self.cluster().is_none();
        let open = async move {
            if waits { connections.renewal_connection_within(MOST_PATIENCE).await } else { connections.here().await }
                .map(drop)
        };
        background()?.run(open).await?
    }

    /// The present runtime's connection, or any other one while that cannot be opened.
    async fn ordinary(self: &Arc<Self>, patience: Duration) -> Result<Arc<Connection>> {
        if let Some(own) = Origin::here().and_then(|here| self.of(here)).filter(|own| self.is_usable(own)) {
            return Ok(own);
        }
        // All connections of a cluster lead to one client.
        if self.cluster().is_some() {
            return self.here().await;
        }
        let (tell, told) = oneshot::channel();
        let connections = self.clone();
        // A task of its own: it may take longer than this renewal can wait, and serve the next one.
        Place::here()?.spawn(async move {
            let opened = connections.here().await;
            // The store may have been closed while the connection was opened.
            if connections.renewal_connection.closed.load(Ordering::Relaxed) {
                connections.open.clear();
            }
            // The renewal that asked may be gone.
            let _ = tell.send(opened);
        });
        let gone = |_| Err(Error::outage("the runtime is shutting down"));
        let mut told = told.unwrap_or_else(gone);
        let limit = self.clock.now().after(patience / 2);
        let opened = self.clock.timeout_at(limit, &mut told).await;
        match opened {
            Some(Ok(own)) => Ok(own),
            Some(Err(error)) => self.any(patience).ok_or(error),
            None => match self.any(patience) {
                Some(other) => Ok(other),
                None => told.await,
            },
        }
    }

    /// A connection of any runtime that lives.
    fn any(&self, patience: Duration) -> Option<Arc<Connection>> {
        let speaks =
            |connection: &Arc<Connection>| self.is_usable(connection) && !connection.is_silent(patience, &self.clock);
        self.present_renewal_connection(patience).or_else(|| self.open.all().into_iter().find(speaks))
    }

    /// Awaits the answers to such renewals. Where they are late, the next ones go another way, also while the holds with
    /// more time still wait for these.
    pub(crate) async fn heard<T>(
        &self,
        connection: &Connection,
        shortest: Duration,
        answers: impl Future<Output = T>,
    ) -> T {
        let sent = self.clock.now();
        let mut answers = pin!(answers);
        match self.clock.timeout_at(sent.after(patience(shortest)), answers.as_mut()).await {
            Some(answers) => answers,
            None => {
                connection.fell_silent(sent);
                answers.await
            }
        }
    }

    /// Dropping the returned future does not end an opening.
    async fn renewal_connection_within(self: &Arc<Self>, patience: Duration) -> Result<Arc<Connection>> {
        if let Some(present) = self.present_renewal_connection(patience) {
            return Ok(present);
        }
        let (tell, told) = oneshot::channel();
        let connections = self.clone();
        background()?.spawn(async move {
            let _turn = connections.renewal_connection.opening.lock().await;
            // If the caller has left meanwhile, the next caller opens the connection.
            if tell.is_closed() {
                return;
            }
            let answer = match connections.present_renewal_connection(patience) {
                Some(present) => Ok(present),
                None => connections.connect().await.inspect(|opened| connections.keep_renewal_connection(opened)),
            };
            // The renewal that asked may be gone.
            let _ = tell.send(answer);
        });
        told.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "dlock's own thread opened no connection")))
    }

    fn present_renewal_connection(&self, patience: Duration) -> Option<Arc<Connection>> {
        let mut present = self.renewal_connection.present();
        let used = present.as_mut()?;
        let (connection, current) = (&used.connection, used.connection.switches == self.switches());
        if !current || connection.is_dead() || connection.is_silent(patience, &self.clock) {
            return None;
        }
        used.last = self.clock.now();
        Some(used.connection.clone())
    }

    fn keep_renewal_connection(&self, opened: &Arc<Connection>) {
        if !self.renewal_connection.closed.load(Ordering::Relaxed) {
            self.renewal_connection.put(Some(Used { connection: opened.clone(), last: self.clock.now() }));
        }
    }
}
