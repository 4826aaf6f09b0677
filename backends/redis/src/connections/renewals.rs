//! The way of renewals: over the runtime's own connection; if that one is dead, too slow or waits for replicas, over the
//! renewal connection. Exists because a connection on which an answer is late would lose every short lease behind it.
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

use dlock_contract::{Error, ErrorKind, Origin, Result};
use dlock_store::background;
use tokio::sync::oneshot;

use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::connections::renewal_connection::Used;

/// A server may be slow for a moment, however short a lease is.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);

const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// After this long without an answer, the next renewal of a lease uses another connection, so that one more can arrive
/// in time.
fn answer_wait(ttl: Duration) -> Duration {
    (ttl / 4).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

impl Connections {
    /// The connection for renewals of holds, the shortest of which has this ttl.
    pub(crate) async fn for_renewals(self: &Arc<Self>, shortest: Duration) -> Result<Arc<Connection>> {
        // All connections of a cluster share one connection to each server.
        if self.cluster().is_some() {
            return self.here().await;
        }
        let answer_wait = answer_wait(shortest);
        let own = Origin::here().and_then(|here| self.of(here)).filter(|own| self.is_usable(own));
        if let Some(own) = own.as_ref().filter(|own| !self.waits() && !own.is_silent(answer_wait, &self.clock)) {
            self.renewal_connection.forget(self.clock.now());
            return Ok(own.clone());
        }
        // The server itself may be slow, and accept no connection.
        let limit = self.clock.now().after(answer_wait / 2);
        let mut opening = pin!(self.renewal_connection_within(answer_wait));
        let opened = self.clock.timeout_at(limit, opening.as_mut()).await;
        if let Some(Ok(beside)) = opened {
            return Ok(beside);
        }
        let speaks = |connection: &Arc<Connection>| {
            self.is_usable(connection) && !connection.is_silent(answer_wait, &self.clock)
        };
        match (own.or_else(|| self.open.all().into_iter().find(speaks)), opened) {
            (Some(other), _) => Ok(other),
            (None, Some(refused)) => refused,
            (None, None) => opening.await,
        }
    }

    /// Whether `WAIT` delays the requests of the ordinary connections.
    fn waits(&self) -> bool {
        self.target.settings.wait_replicas > 0 && self.cluster().is_none()
    }

    /// Opens the connection of the renewals to come.
    ///
    /// # Errors
    /// If it cannot be opened: holds of such a store could not be relied on.
    pub async fn open_for_renewals(self: &Arc<Self>) -> Result<()> {
        let connections = self.clone();
        let open = async move {
            let opened = if connections.waits() {
                connections.renewal_connection_within(LONGEST_WAIT).await
            } else {
                connections.here().await
            };
            opened.map(drop)
        };
        background()?.run(open).await?
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
        match self.clock.timeout_at(sent.after(answer_wait(shortest)), answers.as_mut()).await {
            Some(answers) => answers,
            None => {
                connection.fell_silent(sent);
                answers.await
            }
        }
    }

    /// Dropping the returned future does not end an opening.
    async fn renewal_connection_within(self: &Arc<Self>, answer_wait: Duration) -> Result<Arc<Connection>> {
        if let Some(present) = self.present_renewal_connection(answer_wait) {
            return Ok(present);
        }
        let (sender, receiver) = oneshot::channel();
        let connections = self.clone();
        background()?.spawn(async move {
            let _turn = connections.renewal_connection.opening.lock().await;
            // If the caller has left meanwhile, the next caller opens the connection.
            if sender.is_closed() {
                return;
            }
            let answer = match connections.present_renewal_connection(answer_wait) {
                Some(present) => Ok(present),
                None => connections.connect().await.inspect(|opened| connections.keep_renewal_connection(opened)),
            };
            // The renewal that asked may be gone.
            let _ = sender.send(answer);
        });
        receiver
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "dlock's own thread opened no connection")))
    }

    fn present_renewal_connection(&self, answer_wait: Duration) -> Option<Arc<Connection>> {
        let mut present = self.renewal_connection.present();
        let used = present.as_mut()?;
        let (connection, current) = (&used.connection, used.connection.switches == self.switches());
        if !current || connection.is_dead() || connection.is_silent(answer_wait, &self.clock) {
            return None;
        }
        used.last = self.clock.now();
        Some(used.connection.clone())
    }

    fn keep_renewal_connection(&self, opened: &Arc<Connection>) {
        self.renewal_connection.put(Some(Used { connection: opened.clone(), last: self.clock.now() }));
        // Asked afterwards, so that a close in this moment is not missed.
        if self.renewal_connection.closed.load(Ordering::SeqCst) {
            self.renewal_connection.leave();
        }
    }
}
