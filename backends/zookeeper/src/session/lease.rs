//! One session, used as a lease: it is closed when nothing was confirmed in it for a ttl. The client library alone would keep
//! it alive for as long as the process runs.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Result};
use dlock_store::{Clock, background};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use zookeeper_client::{Client, SessionInfo, SessionState, StateWatcher};

use super::deletes::Deletes;

/// How long a request waits for a broken connection to come back.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A session of the server.
pub(crate) struct Lease {
    /// Dropping the last clone closes the session.
    client: Mutex<Option<Client>>,
    state: StateWatcher,
    id: i64,
    ttl: Duration,
    /// Whether several holds share it.
    pub(crate) shared: bool,
    pub(crate) deletes: Deletes,
    /// When the newest of the requests that a majority has confirmed was sent, in nanoseconds.
    confirmed: AtomicU64,
    is_over: watch::Sender<bool>,
    clock: Clock,
}

impl Lease {
    /// Begins the lease of a new session. `confirmed` is the time at which the request to open it left.
    pub(crate) fn begin(
        client: Client,
        ttl: Duration,
        shared: bool,
        confirmed: BootInstant,
        clock: &Clock,
    ) -> Result<Arc<Self>> {
        let lease = Arc::new(Self {
            state: client.state_watcher(),
            id: client.session_id().0,
            client: Mutex::new(Some(client)),
            ttl,
            shared,
            deletes: Deletes::begin()?,
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            is_over: watch::Sender::new(false),
            clock: clock.clone(),
        });
        let (watched, clock) = (Arc::downgrade(&lease), clock.clone());
        background()?.spawn(async move {
            while let Some(ends) = watched.upgrade().map(|lease| lease.ends()) {
                if clock.now() < ends {
                    clock.sleep_until(ends).await;
                } else if let Some(lease) = watched.upgrade() {
                    return lease.end();
                }
            }
        });
        Ok(lease)
    }

    /// The session's id and password, with which another client can take it over.
    pub(crate) fn session(&self) -> Option<SessionInfo> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|client| client.session().clone())
    }

    /// The id of the session.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// When the newest of the requests that a majority has confirmed was sent.
    pub(crate) fn confirmed(&self) -> BootInstant {
        BootInstant::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// Records that a majority has confirmed a request that was sent at this time.
    pub(crate) fn confirm(&self, since: BootInstant) {
        // An end is final. Otherwise a release that found the session ended would leave its node in a session that lives on.
        if self.lives() {
            self.confirmed.fetch_max(since.as_nanos(), Ordering::AcqRel);
        }
    }

    /// Whether the next grant must be confirmed anew, so that most of its ttl remains.
    pub(crate) fn is_stale(&self) -> bool {
        self.clock.now().since(self.confirmed()) > self.ttl / 4
    }

    /// The end of the lease if nothing more is confirmed.
    pub(crate) fn ends(&self) -> BootInstant {
        self.confirmed().after(self.ttl)
    }

    /// Whether a new claim should use another session: this one may be closed during the claim's attempt.
    pub(crate) fn ends_soon(&self) -> bool {
        self.clock.now().after(self.ttl / 4) >= self.ends()
    }

    pub(crate) fn lives(&self) -> bool {
        !*self.is_over.borrow() && !self.state.peek_state().is_terminated() && self.clock.now() < self.ends()
    }

    /// The client, once it has a connection.
    ///
    /// # Errors
    /// If the session has ended, or has no connection for 500 ms. Then no request was sent.
    pub(crate) async fn client(&self) -> Result<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ended = || Error::outage("the ZooKeeper session has ended").never_sent();
        let client = client.filter(|_| self.lives()).ok_or_else(ended)?;
        let mut state = client.state_watcher();
        if client.state() != SessionState::SyncConnected {
            let is_settled = |state: SessionState| state == SessionState::SyncConnected || state.is_terminated();
            let settled = async { while !is_settled(state.changed().await) {} };
            let until = self.clock.now().after(RECONNECT_TIMEOUT);
            let not_connected = || Error::outage("there is no connection to ZooKeeper").never_sent();
            // Checked again, because the state may have changed before the watcher was made.
            if !is_settled(client.state()) {
                self.clock.timeout_at(until, settled).await.ok_or_else(not_connected)?;
            }
            if !self.lives() {
                return Err(ended());
            }
        }
        Ok(client)
    }

    /// Whether the session has ended, after a request got no answer. If another client closes the session, its
    /// connection breaks too, and only the next connection shows why. So this waits for it.
    pub(crate) async fn has_ended(&self) -> bool {
        let _ = self.client().await;
        !self.lives()
    }

    /// Gives a request up when the connection has been broken for 500 ms. The client library alone would keep the request
    /// until there is a connection again, and may still send it then.
    pub(crate) async fn while_connected<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let mut state = self.state.clone();
        let cut_off = async {
            loop {
                while state.peek_state() != SessionState::Disconnected {
                    state.changed().await;
                }
                let until = self.clock.now().after(RECONNECT_TIMEOUT);
                let other = async { while state.changed().await == SessionState::Disconnected {} };
                if self.clock.timeout_at(until, other).await.is_none() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            answer = request => answer,
            () = cut_off => Err(Error::outage("the connection to ZooKeeper is broken")),
        }
    }

    /// Closes the session. The server deletes its nodes.
    pub(crate) fn end(&self) {
        self.is_over.send_replace(true);
        drop(self.client.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Closes the session, and waits until the client library has done so.
    pub(crate) async fn close(&self) {
        self.end();
        let mut state = self.state.clone();
        while !state.peek_state().is_terminated() {
            state.changed().await;
        }
    }

    /// A future that ends when the session has ended.
    pub(crate) fn ended(&self) -> BoxFuture<'static, ()> {
        let (mut state, mut is_over) = (self.state.clone(), self.is_over.subscribe());
        async move {
            let terminated = async {
                while !state.peek_state().is_terminated() {
                    state.changed().await;
                }
            };
            tokio::select! {
                () = terminated => {}
                _ = is_over.wait_for(|is_over| *is_over) => {}
            }
        }
        .boxed()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("id", &self.id).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
