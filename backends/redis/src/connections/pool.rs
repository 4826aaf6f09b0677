//! All connections of one store: one for each runtime that asks, opened and polled there. dlock's own thread is one of them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dlock_contract::{Origin, Result};
use dlock_store::{Clock, PerRuntime, line};
use tokio::sync::Notify;

use crate::cluster::servers::Servers;
use crate::connections::asked::Asked;
use crate::connections::compare_and_delete::CompareAndDelete;
use crate::connections::connection::Connection;
use crate::connections::renewal_connection::RenewalConnection;
use crate::connections::stale::StaleConnections;
use crate::quarantine::server::Quarantine;
use crate::topology::sentinel::Address;
use crate::topology::target::{Plan, Target};

/// The highest token is noted in steps of this size.
pub(crate) const HIGH_STEP: u64 = 1024;

/// All connections to one server.
pub struct Connections {
    /// Which one of this process's stores.
    store: u64,
    /// The server of the URL.
    pub target: Target,
    /// The clock of the registry.
    pub clock: Clock,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) compare_and_delete: CompareAndDelete,
    /// The highest token that this process has seen, or up to a step less.
    high: AtomicU64,
    pub(crate) open: PerRuntime<Arc<Connection>>,
    pub(crate) stale: Arc<StaleConnections>,
    /// For renewals.
    pub(crate) renewal_connection: RenewalConnection,
    /// Whether there has ever been a connection to a primary.
    pub(crate) was_open: AtomicBool,
    /// How many times another server became the primary: what was opened before leads to the wrong one.
    switches: AtomicU64,
    /// Wakes the tasks that wait for the next switch.
    switched: Notify,
    /// The last address of the primary that the sentinels reported.
    pub(crate) primary: Mutex<Option<Address>>,
    /// The servers of a cluster that were asked what the opening asks.
    pub(crate) asked: Asked,
    /// The servers of a cluster.
    servers: Option<Arc<Servers>>,
}

thread_local! {
    /// The connection that this thread used last, by store and runtime: most requests find theirs here, without a
    /// lock that all threads share. Weak, so that it keeps no connection open.
    static LATEST: RefCell<Option<(u64, Origin, Weak<Connection>)>> = const { RefCell::new(None) };
}

impl Connections {
    /// Opens nothing yet.
    pub fn new(target: Target, clock: Clock) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        let quarantine = Arc::new(Quarantine::new(&target.settings, format!("{target:?}")));
        let ended = quarantine.clone();
        let servers = match &target.plan {
            Plan::Cluster(plan) => Some(Servers::new(plan, &clock, move || ended.shards.changed())),
            Plan::Server(_) | Plan::Sentinel(_) => None,
        };
        Self {
            store,
            quarantine,
            compare_and_delete: CompareAndDelete::default(),
            target,
            clock,
            high: AtomicU64::new(0),
            open: PerRuntime::new(),
            stale: Arc::default(),
            renewal_connection: RenewalConnection::default(),
            switches: AtomicU64::new(0),
            was_open: AtomicBool::new(false),
            switched: Notify::new(),
            primary: Mutex::default(),
            asked: Asked::default(),
            servers,
        }
    }

    /// The present runtime's connection, opened if there is none that lives.
    pub async fn here(self: &Arc<Self>) -> Result<Arc<Connection>> {
        match self.latest() {
            Some(connection) if self.is_usable(&connection) && !self.stale.any() => Ok(connection),
            _ => Box::pin(self.find()).await,
        }
    }

    async fn find(self: &Arc<Self>) -> Result<Arc<Connection>> {
        let open = || {
            let all = self.clone();
            self.open.get(move || async move { all.connect().await })
        };
        let mut connection = open().await?.value;
        if !self.is_usable(&connection) {
            self.discard(&connection);
            connection = open().await?.value;
        }
        self.kill_stale(&connection).await;
        let latest = (self.store, connection.runtime, Arc::downgrade(&connection));
        // A thread that is ending has no such place any more, and needs none.
        let _ = LATEST.try_with(|place| place.replace(Some(latest)));
        Ok(connection)
    }

    fn latest(&self) -> Option<Arc<Connection>> {
        let here = Origin::here()?;
        let found = LATEST.try_with(|place| match &*place.borrow() {
            Some((store, runtime, connection)) if (*store, *runtime) == (self.store, here) => connection.upgrade(),
            _ => None,
        });
        found.ok().flatten()
    }

    /// The connection of that runtime, if it is open still.
    pub(crate) fn of(&self, runtime: Origin) -> Option<Arc<Connection>> {
        let connection = self.open.peek(runtime)?.value;
        let current = connection.switches == self.switches();
        (current && !connection.is_dead()).then_some(connection)
    }

    pub(crate) fn is_usable(&self, connection: &Connection) -> bool {
        connection.switches == self.switches() && connection.is_usable(&self.clock)
    }

    pub(crate) fn discard(&self, connection: &Arc<Connection>) {
        self.stale.add(&connection.named);
        if !connection.dead.swap(true, Ordering::Relaxed) {
            self.quarantine.ended(self.clock.now());
        }
        // Another one may have taken its place already.
        if let Some(opened) = self.open.peek(connection.runtime).filter(|opened| Arc::ptr_eq(&opened.value, connection))
        {
            self.open.discard(&opened);
        }
    }

    /// Ends all connections.
    pub fn close(&self) {
        self.open.close();
        self.renewal_connection.close();
        if let Some(servers) = &self.servers {
            servers.close();
        }
    }

    /// How many times another server became the primary.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Acquire)
    }

    /// Ends when another server becomes the primary.
    pub(crate) async fn switched(&self, since: u64) {
        loop {
            let mut news = std::pin::pin!(self.switched.notified());
            // Before the look, so that none falls between.
            news.as_mut().enable();
            if self.switches() != since {
                return;
            }
            news.await;
        }
    }

    /// Leaves the present primary, if it is not this one.
    pub(crate) fn follow(&self, primary: &Address) {
        let mut known = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| known != primary) {
            *known = Some(primary.clone());
            drop(known);
            let host = format!("{:?}", self.target);
            line(move || {
                tracing::warn!(host, "another Redis has become the primary; all connections are opened again");
            });
            self.quarantine.replaced(self.clock.now());
            self.switches.fetch_add(1, Ordering::AcqRel);
            self.switched.notify_waiters();
            self.open.clear();
            self.stale.forget();
            self.renewal_connection.leave();
        }
    }

    /// The servers of the cluster, if the store is one.
    pub(crate) fn cluster(&self) -> Option<&Arc<Servers>> {
        self.servers.as_ref()
    }

    /// No token that was seen so far is above this one. In a cluster the counters of the slots run by the clocks of
    /// different servers, and nothing follows from the tokens of one for another.
    pub(crate) fn high(&self) -> u64 {
        if self.cluster().is_some() {
            return 0;
        }
        self.high.load(Ordering::Relaxed).saturating_add(HIGH_STEP)
    }

    /// Whether the token is older than tokens that this process had seen when it read `high`.
    pub(crate) fn is_behind(token: u64, high: u64) -> bool {
        token.saturating_add(HIGH_STEP) <= high
    }

    /// Notes a token.
    pub fn saw(&self, token: u64) {
        // Not each one: a place that all threads write to is slow.
        if self.cluster().is_none() && token >= self.high() {
            self.high.fetch_max(token, Ordering::Relaxed);
        }
    }
}
