//! One session, used as a lease: it ends when nothing was confirmed in it for a ttl, although the client library would
//! keep it alive for as long as the process runs.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock, Error, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use zookeeper_client::{Client, SessionInfo, SessionState, StateWatcher};

/// How long a request waits for a connection that is broken. Then it fails, and was never sent.
const PATIENCE: Duration = Duration::from_millis(500);

/// A session of the server.
pub(crate) struct Lease {
    /// Dropping the last one closes the session.
    client: Mutex<Option<Client>>,
    state: StateWatcher,
    id: i64,
    ttl: Duration,
    /// Whether several holds may live in it.
    pub(crate) shared: bool,
    /// When the last request left that a majority has confirmed.
    confirmed: AtomicU64,
    over: watch::Sender<bool>,
    clock: Clock,
}

impl Lease {
    /// The lease begins with the opening of the session, which was asked for at `confirmed`.
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
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            over: watch::Sender::new(false),
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

    /// The session as another client would take it over.
    pub(crate) fn session(&self) -> Option<SessionInfo> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|client| client.session().clone())
    }

    /// The number of the session.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// When the last request left that a majority has confirmed.
    pub(crate) fn confirmed(&self) -> BootInstant {
        BootInstant::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// A request that left then was answered, and a majority stands behind the answer.
    pub(crate) fn confirm(&self, since: BootInstant) {
        self.confirmed.fetch_max(since.as_nanos(), Ordering::AcqRel);
    }

    /// Whether the next grant should be confirmed again, so that it has most of its ttl before it.
    pub(crate) fn is_stale(&self) -> bool {
        self.clock.now().since(self.confirmed()) > self.ttl / 4
    }

    /// The end, if nothing more is confirmed.
    pub(crate) fn ends(&self) -> BootInstant {
        self.confirmed().after(self.ttl)
    }

    /// Whether a new claim should have another session: this one may be given up while the claim asks in it.
    pub(crate) fn ends_soon(&self) -> bool {
        self.clock.now().after(self.ttl / 4) >= self.ends()
    }

    pub(crate) fn lives(&self) -> bool {
        !*self.over.borrow() && !self.state.peek_state().is_terminated() && self.clock.now() < self.ends()
    }

    /// The client of a session that lives, and has a connection.
    pub(crate) async fn client(&self) -> Result<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ended = || Error::outage("the ZooKeeper session has ended").never_sent();
        let client = client.filter(|_| self.lives()).ok_or_else(ended)?;
        let mut state = client.state_watcher();
        if client.state() != SessionState::SyncConnected {
            let connected = async { while state.changed().await != SessionState::SyncConnected {} };
            let until = self.clock.now().after(PATIENCE);
            let late = || Error::outage("there is no connection to ZooKeeper").never_sent();
            // Looked at again, since the change may have come before the watcher.
            if client.state() != SessionState::SyncConnected {
                self.clock.timeout_at(until, connected).await.ok_or_else(late)?;
            }
        }
        Ok(client)
    }

    /// Gives a request up when the connection has been broken for a while: the client library would keep it until there is
    /// a connection again. It may still be sent then.
    pub(crate) async fn while_connected<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let mut state = self.state.clone();
        let cut_off = async {
            loop {
                while state.peek_state() != SessionState::Disconnected {
                    state.changed().await;
                }
                let until = self.clock.now().after(PATIENCE);
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

    /// Closes the session, with all that lives in it.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
        drop(self.client.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Closes the session, and waits until the server has heard of it.
    pub(crate) async fn close(&self) {
        self.end();
        let mut state = self.state.clone();
        while !state.peek_state().is_terminated() {
            state.changed().await;
        }
    }

    /// Ends when the session has ended.
    pub(crate) fn ended(&self) -> BoxFuture<'static, ()> {
        let (mut state, mut over) = (self.state.clone(), self.over.subscribe());
        async move {
            let terminated = async {
                while !state.peek_state().is_terminated() {
                    state.changed().await;
                }
            };
            tokio::select! {
                () = terminated => {}
                _ = over.wait_for(|over| *over) => {}
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
