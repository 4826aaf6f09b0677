//! One client for each runtime, and the change to another member when it fails.
//!
//! A client talks to one member at a time, and moves on to the next host when that member fails. The client library's
//! own balancing prefers a dead member, because a refused connection is the fastest answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(feature = "tls")]
use dlock_contract::TlsMode;
use dlock_contract::engine::{CallerRuntime, EndsTask, Names};
use dlock_contract::{BootInstant, Clock, Error, ErrorKind, Opened, PerRuntime, Result, Tls};
#[cfg(feature = "tls")]
use etcd_client::{Certificate, Identity, TlsOptions};
use etcd_client::{
    Client, ConnectOptions, Error as ClientError, GetOptions, GetResponse, LeaseGrantResponse, Txn, TxnResponse,
    WatchFilterType, WatchOptions, WatchStream,
};

use tokio::sync::oneshot;

use super::fault::Fault;
use super::members::Members;

/// How long a connect may take, over all hosts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// At least so many tries share this time. A network that is silent for a moment swallows a connect for ever, and a
/// single try would take the time in which holds must be renewed.
const CONNECTS: usize = 3;
/// If a request is given up after this time or later, the member counts as silent. An earlier end does not count. Less
/// than the shortest ttl, which bounds the requests about its locks: a request leaves a moment after that time began.
pub(super) const SILENCE: Duration = Duration::from_millis(900);

/// The longest time that one caller may keep the gate.
const PATIENCE: Duration = Duration::from_secs(5);

/// The clients of all runtimes.
pub(super) struct Connections {
    members: Members,
    pub(super) clock: Clock,
    names: Names,
    wires: PerRuntime<Arc<Wire>>,
    /// The host in use.
    turn: AtomicUsize,
    /// The highest revision of the store that a transaction has told.
    pub(super) seen: Arc<AtomicI64>,
}

struct Wire {
    client: Client,
    /// Only one task of a runtime creates or revives a lease at a time. Runtimes do not share the gate: a blocked
    /// runtime would delay the others.
    gate: Arc<tokio::sync::Mutex<()>>,
    turn: usize,
}

impl Connections {
    pub(super) fn new(members: Members, clock: &Clock) -> Self {
        // A random host first, so that not all processes use the same member.
        let turn = AtomicUsize::new(fastrand::usize(..1 << 16));
        Self {
            members,
            clock: clock.clone(),
            names: Names::default(),
            wires: PerRuntime::new(),
            turn,
            seen: Arc::default(),
        }
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        self.members.shown()
    }

    /// The connection of the current runtime.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Connection> {
        let all = self.clone();
        let opened = self.wires.get(move || async move { all.connect().await }).await?;
        Ok(Connection { home: self.clone(), opened })
    }

    pub(super) fn clear(&self) {
        self.wires.clear();
    }

    async fn connect(&self) -> Result<Arc<Wire>> {
        let hosts = &self.members.hosts;
        let end = self.clock.now().after(CONNECT_TIMEOUT);
        let mut last = Error::outage("no etcd member answered in time");
        for left in (1..=hosts.len().max(CONNECTS)).rev() {
            let turn = self.turn.load(Ordering::Relaxed);
            let now = self.clock.now();
            // A silent member must leave time for the others.
            let share = end.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            match self.clock.timeout_at(now.after(share), self.reach(&hosts[turn % hosts.len()])).await {
                Some(Ok(client)) => return Ok(Arc::new(Wire { client, gate: Arc::default(), turn })),
                Some(Err(error)) if !error.is_retryable() => return Err(error),
                Some(Err(error)) => last = error,
                None => {}
            }
            self.move_on(turn);
        }
        Err(last)
    }

    /// The first address of a host that answers.
    async fn reach(&self, (name, port): &(String, u16)) -> Result<Client> {
        let found = self.names.addresses(name, *port).await;
        let addresses = found.map_err(|error| {
            Error::outage(format!("the host name of an etcd member cannot be looked up: {}", error.kind()))
        })?;
        let mut last = Error::outage("the host name of an etcd member has no address");
        for address in addresses {
            match self.reach_at(name, &address.to_string()).await {
                Ok(client) => return Ok(client),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn reach_at(&self, name: &str, address: &str) -> Result<Client> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            // The server accepts at most one ping in five seconds.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            // With this, a member that is cut off from the others says so at once, and ends its watches.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        let (options, scheme) = with_tls(options, name, &self.members.tls);
        let options = match &self.members.user {
            Some((user, password)) => options.with_user(user, password.reveal()),
            None => options,
        };
        let client = Client::connect([format!("{scheme}://{address}")], Some(options)).await.map_err(Fault::from)?;
        // A linearizable read shows that the member answers with a majority behind it. The server checks permissions
        // after that, and not every account may read exactly this key.
        match client.kv_client().get("dl1:", Some(GetOptions::new().with_count_only())).await.map_err(Fault::from) {
            Ok(_) | Err(Fault::Refused(ErrorKind::PermissionDenied, _)) if self.members.has_account() => {}
            answer => drop(answer?),
        }
        Ok(client)
    }

    fn move_on(&self, from: usize) {
        // Many requests may fail together. Change the host only once.
        let _ = self.turn.compare_exchange(from, from.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The server's certificate is looked at for the name in the URL: the address was looked up without any proof.
#[cfg(feature = "tls")]
fn with_tls(options: ConnectOptions, name: &str, tls: &Tls) -> (ConnectOptions, &'static str) {
    if tls.mode == TlsMode::Off {
        return (options, "http");
    }
    let mut wanted = TlsOptions::new().domain_name(name);
    wanted = match &tls.ca {
        Some(ca) => wanted.ca_certificate(Certificate::from_pem(ca)),
        None => wanted.with_native_roots(),
    };
    if let Some((cert, key)) = &tls.identity {
        wanted = wanted.identity(Identity::from_pem(cert, key));
    }
    (options.with_tls(wanted), "https")
}

/// Without the feature, a URL that asks for TLS was refused.
#[cfg(not(feature = "tls"))]
fn with_tls(options: ConnectOptions, _: &str, _: &Tls) -> (ConnectOptions, &'static str) {
    (options, "http")
}

/// The connection of one runtime.
#[derive(Clone)]
pub(super) struct Connection {
    home: Arc<Connections>,
    opened: Opened<Arc<Wire>>,
}

impl Connection {
    /// Runs what only one task of this runtime may do at a time. As a task, which ends with the returned future: a
    /// caller that stands at the gate or has passed it may not be polled, and would keep all others there.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (tell, told) = oneshot::channel();
        let (gate, clock) = (self.opened.value.gate.clone(), self.home.clock.clone());
        let task = async move {
            let _turn = gate.lock().await;
            // Bounded, because the caller may never give up.
            let answer = clock.timeout_at(clock.now().after(PATIENCE), work).await;
            // The caller may be gone meanwhile.
            let _ = tell.send(answer.unwrap_or_else(|| Err(Fault::Broken("etcd did not answer for a lease".into()))));
        };
        let place = CallerRuntime::here().map_err(|error| Fault::Broken(error.to_string()))?;
        let _task = EndsTask(place.spawn(task));
        told.await.unwrap_or_else(|_| Err(Fault::Broken("the runtime is shutting down".into())))
    }

    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Fault> {
        let answer = self.ask(self.client().kv_client().txn(txn)).await?;
        let revision = answer.header().map_or(0, |header| header.revision());
        self.home.seen.fetch_max(revision, Ordering::AcqRel);
        Ok(answer)
    }

    pub(super) async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Fault> {
        self.ask(self.client().kv_client().get(key, Some(options))).await
    }

    pub(super) async fn grant(&self, seconds: i64) -> Result<LeaseGrantResponse, Fault> {
        self.ask(self.client().lease_client().grant(seconds, None)).await
    }

    pub(super) async fn keep_alive(&self, lease: i64) -> Result<(), Fault> {
        self.ask(self.client().lease_client().keep_alive(lease)).await.map(drop)
    }

    /// The time that is left of a lease and the time that was granted, in seconds; `None` if the lease has ended.
    pub(super) async fn time_to_live(&self, lease: i64) -> Result<Option<(u64, u64)>, Fault> {
        let told = match self.ask(self.client().lease_client().time_to_live(lease, None)).await {
            Ok(told) => told,
            Err(Fault::LeaseGone) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        Ok(u64::try_from(told.ttl()).ok().zip(u64::try_from(told.granted_ttl()).ok()))
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Fault> {
        self.ask(self.client().lease_client().revoke(lease)).await.map(drop)
    }

    /// Watches two keys for their deletion, from now on.
    pub(super) async fn watch_both(&self, one: &[u8], other: &[u8]) -> Result<WatchStream, Fault> {
        let deletions = || Some(WatchOptions::new().with_filters([WatchFilterType::NoPut]));
        let mut watch = self.client().watch_client();
        self.ask(async {
            let mut stream = watch.watch(one, deletions()).await?;
            stream.watch(other, deletions()).await?;
            Ok(stream)
        })
        .await
    }

    /// Watches a range for deletions, from now on. The events have the deleted keys.
    pub(super) async fn watch_range(&self, from: &[u8], to: &[u8]) -> Result<WatchStream, Fault> {
        let options = WatchOptions::new().with_range(to).with_filters([WatchFilterType::NoPut]).with_prev_key();
        self.ask(self.client().watch_client().watch(from, Some(options))).await
    }

    fn client(&self) -> &Client {
        &self.opened.value.client
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T, ClientError>>) -> Result<T, Fault> {
        let mut patience = Patience { connection: self, since: self.home.clock.now(), answered: false };
        let answer = request.await.map_err(Fault::from);
        patience.answered = true;
        if let Err(Fault::Broken(_)) = &answer {
            self.discard();
        }
        answer
    }

    pub(super) fn discard(&self) {
        self.home.move_on(self.opened.value.turn);
        self.home.wires.discard(&self.opened);
    }
}

/// Notices a member that stays silent until the caller gives up. Such a request is dropped, and has no other end.
struct Patience<'a> {
    connection: &'a Connection,
    since: BootInstant,
    answered: bool,
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if !self.answered && self.connection.home.clock.now().since(self.since) >= SILENCE {
            self.connection.discard();
        }
    }
}
