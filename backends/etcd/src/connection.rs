//! One client for each runtime, and the change to another member when it fails.
//!
//! A client talks to one member at a time, and moves on to the next host when that member fails. The client library's
//! own balancing prefers a dead member, because a refused connection is the fastest answer.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Health, Result};
use dlock_store::{CallerRuntime, Clock, EndsTask, Names, Opened, PerRuntime};
use etcd_client::{
    Client, ConnectOptions, GetOptions, GetResponse, LeaseGrantResponse, ResponseHeader, Txn, WatchClient,
    WatchFilterType, WatchOptions, WatchStream,
};
use tokio::sync::oneshot;

use super::answers::TxnAnswers;
use super::cluster_id::{ClusterId, id_of, same_cluster};
use super::combine::{Combiner, Scope};
use super::fault::Fault;
use super::key_range::KeyRange;
use super::members::{Members, with_tls};

/// How long a connect may take, over all hosts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connect has at least this many tries within that time. A network that drops packets for a moment leaves a try
/// without an answer, and a single try would take the time in which holds must be renewed.
const MIN_TRIES: usize = 3;
/// If a caller gives a request up after this time or later, the member counts as silent. It is less than the shortest
/// ttl, because the engine gives up a request about a lock no later than that.
pub(super) const SILENT_AFTER: Duration = Duration::from_millis(900);

/// The longest time for which one task may keep the others from creating or reviving a lease.
const EXCLUSIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The clients of all runtimes.
pub(super) struct Connections {
    pub(super) members: Members,
    pub(super) clock: Clock,
    names: Names,
    clients: PerRuntime<Arc<RuntimeClient>>,
    /// The index of the host in use; it only grows.
    host_index: AtomicUsize,
    /// The highest revision of the store in the answers to transactions.
    pub(super) seen: Arc<AtomicI64>,
    pub(super) cluster: ClusterId,
}

struct RuntimeClient {
    client: Client,
    /// The id of its cluster; zero if it is unknown.
    cluster: u64,
    combiner: Arc<Combiner>,
    /// Only one task of a runtime creates or revives a lease at a time. Runtimes do not share this mutex, because a
    /// blocked runtime would delay the others.
    lease_mutex: Arc<tokio::sync::Mutex<()>>,
    host_index: usize,
}

impl Connections {
    pub(super) fn new(members: Members, clock: &Clock) -> Self {
        // A random host first, so that not all processes use the same member.
        let host_index = AtomicUsize::new(fastrand::usize(..1 << 16));
        Self {
            members,
            clock: clock.clone(),
            names: Names::default(),
            clients: PerRuntime::new(),
            host_index,
            seen: Arc::default(),
            cluster: ClusterId::default(),
        }
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        self.members.shown()
    }

    /// The connection of the current runtime.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Connection> {
        let all = self.clone();
        let opened = self.clients.get(move || async move { all.connect().await }).await?;
        Ok(Connection { connections: self.clone(), opened })
    }

    pub(super) fn close(&self) {
        self.clients.close();
    }

    async fn connect(&self) -> Result<Arc<RuntimeClient>> {
        let hosts = &self.members.hosts;
        let end = self.clock.now().after(CONNECT_TIMEOUT);
        let mut last = Error::outage("no etcd member answered in time");
        for left in (1..=hosts.len().max(MIN_TRIES)).rev() {
            let host_index = self.host_index.load(Ordering::Relaxed);
            let now = self.clock.now();
            // A silent member must not use up the time of the others.
            let share = end.since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            let connecting = async {
                let client = self.connect_to_host(&hosts[host_index % hosts.len()]).await?;
                let cluster = id_of(&client).await?;
                Ok((client, cluster))
            };
            let connected = match self.clock.timeout_at(now.after(share), connecting).await {
                Some(Ok((client, cluster))) => Some(self.admit(cluster).await.map(|()| (client, cluster))),
                other => other,
            };
            match connected {
                Some(Ok((client, cluster))) => {
                    let combiner =
                        Combiner::new(client.kv_client(), cluster, self.seen.clone(), CallerRuntime::here()?);
                    let lease_mutex = Arc::default();
                    return Ok(Arc::new(RuntimeClient { client, cluster, combiner, lease_mutex, host_index }));
                }
                Some(Err(error)) if !error.is_retryable() => return Err(error),
                Some(Err(error)) => last = error,
                None => {}
            }
            self.next_host(host_index);
        }
        Err(last)
    }

    /// Connects to the first address of the host that answers.
    pub(super) async fn connect_to_host(&self, (name, port): &(String, u16)) -> Result<Client> {
        let connect = async |address: SocketAddr| self.connect_to_address(name, &address.to_string()).await;
        self.names.connect("an etcd member", (name, *port), connect).await
    }

    async fn connect_to_address(&self, name: &str, address: &str) -> Result<Client> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            // The server accepts at most one ping in five seconds.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            // Without this, a member that is cut off from the others would keep its watches open, and say nothing.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        let (options, scheme) = with_tls(options, name, &self.members.tls);
        let options = match &self.members.user {
            Some((user, password)) => options.with_user(user, password.reveal()),
            None => options,
        };
        let client = Client::connect([format!("{scheme}://{address}")], Some(options)).await.map_err(Fault::from)?;
        // A linearizable read shows that the member reaches a majority. The server checks permissions after that, so a
        // refusal shows it too. Not every account may read this key.
        match client.kv_client().get("dl1:", Some(GetOptions::new().with_count_only())).await.map_err(Fault::from) {
            Ok(_) | Err(Fault::Refused(ErrorKind::PermissionDenied, _)) if self.members.has_account() => {}
            answer => drop(answer?),
        }
        Ok(client)
    }

    fn next_host(&self, from: usize) {
        // Many requests may fail together. They change the host only once.
        let _ = self.host_index.compare_exchange(from, from.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The connection of one runtime.
#[derive(Clone)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    opened: Opened<Arc<RuntimeClient>>,
}

impl Connection {
    /// Runs work that only one task of this runtime may do at a time. The work runs as a task, which ends with the
    /// returned future. Otherwise a caller that nobody polls could keep the mutex, and all others would wait.
    pub(super) async fn one_at_a_time<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (sender, reply) = oneshot::channel();
        let (lease_mutex, clock) = (self.opened.value.lease_mutex.clone(), self.connections.clock.clone());
        let task = async move {
            let _turn = lease_mutex.lock().await;
            // Bounded, because the caller may wait for ever.
            let answer = clock.timeout_at(clock.now().after(EXCLUSIVE_TIMEOUT), work).await;
            // The caller may have been dropped.
            let _ = sender.send(answer.unwrap_or_else(|| Err(Fault::Broken("etcd did not answer for a lease".into()))));
        };
        let place = CallerRuntime::here().map_err(|error| Fault::Broken(error.to_string()))?;
        let _task = EndsTask(place.spawn(task));
        reply.await.unwrap_or_else(|_| Err(Fault::Broken("the runtime is shutting down".into())))
    }

    /// Sends a transaction by itself.
    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnAnswers, Fault> {
        let request = UnansweredRequest::new(self);
        request.answered(self.opened.value.combiner.alone(txn).await)
    }

    /// Sends a transaction that changes keys of this scope only. It may leave with those of other locks.
    pub(super) async fn txn_of(&self, scope: Scope, txn: Txn) -> Result<TxnAnswers, Fault> {
        let request = UnansweredRequest::new(self);
        request.answered(self.opened.value.combiner.send(scope, txn).await)
    }

    pub(super) async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Fault> {
        let request = UnansweredRequest::new(self);
        let mut client = self.client().kv_client().max_decoding_message_size(usize::MAX);
        request.answered(self.of_cluster(client.get(key, Some(options)).await, GetResponse::header))
    }

    pub(super) async fn grant(&self, seconds: i64) -> Result<LeaseGrantResponse, Fault> {
        let request = UnansweredRequest::new(self);
        let granted = self.client().lease_client().grant(seconds, None).await;
        request.answered(self.of_cluster(granted, LeaseGrantResponse::header))
    }

    pub(super) async fn keep_alive(&self, lease: i64) -> Result<(), Fault> {
        let request = UnansweredRequest::new(self);
        request.answered(self.client().lease_client().keep_alive(lease).await).map(drop)
    }

    /// The remaining time of a lease and its granted ttl, in seconds; `None` if the lease has ended.
    pub(super) async fn time_to_live(&self, lease: i64) -> Result<Option<(u64, u64)>, Fault> {
        let request = UnansweredRequest::new(self);
        let reply = match request.answered(self.client().lease_client().time_to_live(lease, None).await) {
            Ok(reply) => reply,
            Err(Fault::LeaseGone) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        Ok(u64::try_from(reply.ttl()).ok().zip(u64::try_from(reply.granted_ttl()).ok()))
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Fault> {
        let request = UnansweredRequest::new(self);
        request.answered(self.client().lease_client().revoke(lease).await).map(drop)
    }

    /// Watches two keys for their deletion. Earlier deletions are not reported.
    pub(super) async fn watch_both(&self, one: &[u8], other: &[u8]) -> Result<WatchStream, Fault> {
        let deletions = || Some(WatchOptions::new().with_filters([WatchFilterType::NoPut]));
        let request = UnansweredRequest::new(self);
        let mut stream = match self.watch_client().watch(one, deletions()).await {
            Ok(stream) => stream,
            refused => return request.answered(refused),
        };
        let watched = stream.watch(other, deletions()).await;
        request.answered(watched.map(|()| stream))
    }

    /// Watches a key for its deletion after this revision.
    pub(super) async fn watch_after(&self, revision: i64, key: &str) -> Result<WatchStream, Fault> {
        let options = WatchOptions::new().with_start_revision(revision + 1).with_filters([WatchFilterType::NoPut]);
        let request = UnansweredRequest::new(self);
        request.answered(self.watch_client().watch(key, Some(options)).await)
    }

    /// Watches a range for deletions. Earlier deletions are not reported.
    pub(super) async fn watch_range(&self, range: &KeyRange) -> Result<WatchStream, Fault> {
        let options = WatchOptions::new().with_range(range.to.as_slice()).with_filters([WatchFilterType::NoPut]);
        let request = UnansweredRequest::new(self);
        request.answered(self.watch_client().watch(range.from.as_slice(), Some(options)).await)
    }

    /// Refuses the answer of a member that belongs to another cluster now.
    fn of_cluster<T>(
        &self,
        answer: Result<T, etcd_client::Error>,
        header: impl Fn(&T) -> Option<&ResponseHeader>,
    ) -> Result<T, Fault> {
        let answer = answer?;
        same_cluster(self.opened.value.cluster, header(&answer))?;
        Ok(answer)
    }

    /// The version and the part of the member, and how many members vote. An account that may not ask is told nothing.
    pub(super) async fn health(&self) -> Result<Health, Fault> {
        let request = UnansweredRequest::new(self);
        let asked = async {
            let status = self.client().maintenance_client().status().await?;
            Ok((status, self.client().cluster_client().member_list().await?))
        };
        let (status, members) = match request.answered::<_, Fault>(asked.await) {
            Ok(answers) => answers,
            Err(Fault::Refused(..)) => return Ok(Health::new()),
            Err(fault) => return Err(fault),
        };
        let leads = status.header().is_some_and(|header| header.member_id() == status.leader());
        let voters = members.members().iter().filter(|member| !member.is_learner()).count();
        Ok(Health::new()
            .version(format!("etcd {}", status.version()))
            .role(if leads { "leader" } else { "follower" })
            .count("members", u64::try_from(voters).unwrap_or(u64::MAX)))
    }

    fn watch_client(&self) -> WatchClient {
        self.client().watch_client().max_decoding_message_size(usize::MAX)
    }

    fn client(&self) -> &Client {
        &self.opened.value.client
    }

    pub(super) fn discard(&self) {
        self.connections.next_host(self.opened.value.host_index);
        self.connections.clients.discard(&self.opened);
    }
}

/// A request that waits for its answer. It notices a member that stays silent until the caller gives up. The caller then
/// drops the request, so only `Drop` can see it.
///
/// It takes the answer and not the future of the request: a function with that future as an argument would store it twice.
struct UnansweredRequest<'a> {
    connection: &'a Connection,
    since: BootInstant,
    answered: bool,
}

impl<'a> UnansweredRequest<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self { connection, since: connection.connections.clock.now(), answered: false }
    }

    /// Discards the connection if it is broken.
    fn answered<T, E: Into<Fault>>(mut self, answer: Result<T, E>) -> Result<T, Fault> {
        self.answered = true;
        let answer = answer.map_err(Into::into);
        if let Err(Fault::Broken(_)) = &answer {
            self.connection.discard();
        }
        answer
    }
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        if !self.answered && self.connection.connections.clock.now().since(self.since) >= SILENT_AFTER {
            self.connection.discard();
        }
    }
}
