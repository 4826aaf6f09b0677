//! Leases. A process has one shared lease for each ttl: its holds and its places in wait queues use it. A hold that is
//! not renewed has a lease of its own.
//!
//! With a lease for each hold, a lock would cost two more commits, and many holds would cost most of the throughput.
//! Renewals keep a shared lease alive, and so do attempts that find it stale. A lease that nobody uses ends by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, ErrorKind, Result, Validity};
use dlock_store::Clock;
use etcd_client::{PutOptions, Txn, TxnOp};

use super::connection::{Connection, Connections};
use super::fault::Fault;
use super::key_numbers::{KeyNumber, KeyNumbers};
use super::names::EPOCHS;

/// The most operations in a transaction that leaves by itself: half of the server's bound, which is 128 by default.
pub(super) const MAX_TXN_KEYS: usize = 64;

/// The pause before the next watch of a lease, after one that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The keys that may have been left behind, by their owner's shard and their name.
pub(super) type Orphans = BTreeMap<(u8, Vec<u8>), Orphan>;

/// How to delete a key that may have been left behind. Until that is done, no other claim uses the key's name.
#[derive(Clone)]
pub(super) struct Orphan {
    pub(super) deletes: Vec<TxnOp>,
    /// The key is not deleted before this time, because `min_hold` may have kept it until then.
    pub(super) due: Option<BootInstant>,
    pub(super) _number: Arc<KeyNumber>,
}

/// One lease in the store.
pub(super) struct Lease {
    pub(super) id: i64,
    /// The ttl that the server granted, and no more than was requested.
    ttl: Duration,
    /// Whether several holds share it. A shared lease is never revoked for one of them.
    pub(super) shared: bool,
    /// The time at which the last confirmed request left.
    confirmed: AtomicU64,
    has_ended: AtomicBool,
    /// The beginning of its epoch keys.
    epoch_prefix: String,
    /// The last seen revision of each epoch key; zero if there is no such key.
    epochs: [AtomicI64; 256],
    /// Keys whose deletion was not confirmed. The renewals of the lease would keep them alive, so they are deleted again.
    orphans: Mutex<Orphans>,
    pub(super) key_numbers: Arc<KeyNumbers>,
    connections: Arc<Connections>,
}

impl Lease {
    fn new(id: i64, ttl: Duration, shared: bool, confirmed: BootInstant, connections: &Arc<Connections>) -> Self {
        Self {
            id,
            ttl,
            shared,
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            has_ended: AtomicBool::new(false),
            epoch_prefix: format!("{EPOCHS}{id:016x}/"),
            epochs: [const { AtomicI64::new(0) }; 256],
            orphans: Mutex::default(),
            key_numbers: Arc::default(),
            connections: connections.clone(),
        }
    }

    /// The highest revision of the store that this process has seen.
    pub(super) fn seen(&self) -> i64 {
        self.connections.seen.load(Ordering::Acquire)
    }

    /// The validity of keys on this lease. It begins at the last confirmation of the lease, which may be older than the
    /// attempt that asks for it.
    pub(super) fn validity(&self) -> Validity {
        Validity::new(BootInstant::from_nanos(self.confirmed.load(Ordering::Acquire)), self.ttl)
    }

    /// From this time on, the next user of the lease must keep it alive.
    pub(super) fn stale_at(&self) -> BootInstant {
        self.validity().from.after(self.ttl / 3)
    }

    /// The key that each transaction which puts a key for one of these owners compares. When this key changes, all such
    /// transactions that have not yet arrived fail. It is on the lease itself, so it ends with the lease.
    ///
    /// There are 256 such keys. With only one, four tasks that kept abandoning starved every other attempt.
    pub(super) fn epoch_key(&self, shard: u8) -> Vec<u8> {
        let mut key = String::with_capacity(self.epoch_prefix.len() + 2);
        let _ = write!(key, "{}{shard:02x}", self.epoch_prefix);
        key.into_bytes()
    }

    pub(super) fn epoch(&self, shard: u8) -> &AtomicI64 {
        &self.epochs[usize::from(shard)]
    }

    pub(super) fn bump_epoch(&self, shard: u8) -> TxnOp {
        self.put(self.epoch_key(shard))
    }

    fn put(&self, key: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::put(key, "", Some(PutOptions::new().with_lease(self.id)))
    }

    /// Ends when the lease may have ended. A server may revoke a lease that is renewed in time: a leader that stood still for
    /// longer than the ttl does so on waking. Holders must not learn of that by their next renewal only.
    pub(super) async fn ended(self: Arc<Self>) {
        while !self.has_ended.load(Ordering::Acquire) {
            let connection = self.connections.get().await;
            if let Ok(connection) = connection
                && matches!(self.watch(&connection).await, Ok(true) | Err(Fault::LeaseGone))
            {
                return;
            }
            let clock = &self.connections.clock;
            clock.sleep_until(clock.now().after(PAUSE_AFTER_FAILURE)).await;
        }
    }

    /// Watches a key that is on the lease for its whole life. True: it was deleted. False: the watch has ended.
    async fn watch(&self, connection: &Connection) -> Result<bool, Fault> {
        let key = format!("{}watched", self.epoch_prefix);
        // Put before each watch. So a lease that ended between two watches is noticed.
        let put = connection.txn(Txn::new().and_then([self.put(key.as_str())])).await?;
        let mut stream = connection.watch_after(put.revision, &key).await?;
        while let Ok(Some(message)) = stream.message().await {
            if message.canceled() {
                break;
            }
            if !message.events().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn orphans(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes keys that were left behind. If this fails, the next call tries again.
    async fn sweep(&self, connection: &Connection, now: BootInstant) {
        let mut orphans = Orphans::new();
        let mut operations = 0;
        for (name, orphan) in self.orphans().iter().filter(|(_, orphan)| orphan.due.is_none_or(|due| due <= now)) {
            // Each deletion also changes an epoch key.
            operations += orphan.deletes.len() + 1;
            if operations > MAX_TXN_KEYS && !orphans.is_empty() {
                break;
            }
            orphans.insert(name.clone(), orphan.clone());
        }
        if orphans.is_empty() {
            return;
        }
        let shards: BTreeSet<u8> = orphans.keys().map(|(shard, _)| *shard).collect();
        let deletes: Vec<_> = orphans.values().flat_map(|orphan| orphan.deletes.iter().cloned()).collect();
        let all: Vec<_> = deletes.iter().cloned().chain(shards.iter().map(|shard| self.bump_epoch(*shard))).collect();
        match connection.txn(Txn::new().and_then(all)).await {
            Ok(answer) => {
                shards.iter().for_each(|shard| self.epoch(*shard).store(answer.revision, Ordering::Release));
                let mut left = self.orphans();
                orphans.keys().for_each(|name| _ = left.remove(name));
            }
            // Without space the epoch keys cannot change, but the locks can be freed. The keys stay orphans, and the
            // next call changes the epoch keys.
            Err(Fault::NoSpace) => _ = connection.txn(Txn::new().and_then(deletes)).await,
            Err(_) => {}
        }
    }
}

/// The shared leases of this process, by the requested ttl in seconds.
pub(super) struct Leases {
    clock: Clock,
    shared: Mutex<HashMap<i64, Arc<Lease>>>,
    connections: Arc<Connections>,
}

impl Leases {
    pub(super) fn new(connections: &Arc<Connections>) -> Self {
        Self { clock: connections.clock.clone(), shared: Mutex::default(), connections: connections.clone() }
    }

    /// The shared lease for this ttl. At least two thirds of its time remain.
    pub(super) async fn shared(self: &Arc<Self>, connection: &Connection, ttl: Duration) -> Result<Arc<Lease>, Fault> {
        let seconds = whole_seconds(ttl)?;
        if let Some(lease) = self.fresh(seconds) {
            return Ok(lease);
        }
        let (leases, own) = (self.clone(), connection.clone());
        connection.one_at_a_time(async move { leases.revive(&own, seconds).await }).await
    }

    async fn revive(&self, connection: &Connection, seconds: i64) -> Result<Arc<Lease>, Fault> {
        // Another task may have done it while this one waited for its turn.
        if let Some(lease) = self.fresh(seconds) {
            return Ok(lease);
        }
        let existing = self.table().get(&seconds).cloned();
        if let Some(lease) = existing
            && self.keep(connection, &lease).await?
        {
            return Ok(lease);
        }
        let granted = self.grant(connection, seconds, true).await?;
        let mut table = self.table();
        // Another runtime may have been faster. Then our lease gets no keys and ends by itself.
        let winner = table.entry(seconds).and_modify(|lease| {
            if lease.has_ended.load(Ordering::Acquire) {
                *lease = granted.clone();
            }
        });
        Ok(winner.or_insert(granted).clone())
    }

    /// A lease for one hold only.
    pub(super) async fn own(&self, connection: &Connection, ttl: Duration) -> Result<Arc<Lease>, Fault> {
        self.grant(connection, whole_seconds(ttl)?, false).await
    }

    /// Whether the lease is alive with at least two thirds of its time left. Keeps it alive if it is stale.
    pub(super) async fn freshen(self: &Arc<Self>, connection: &Connection, lease: &Arc<Lease>) -> Result<bool, Fault> {
        if self.is_fresh(lease) {
            return Ok(true);
        }
        let (leases, own, lease) = (self.clone(), connection.clone(), lease.clone());
        let freshen = async move { if leases.is_fresh(&lease) { Ok(true) } else { leases.keep(&own, &lease).await } };
        connection.one_at_a_time(freshen).await
    }

    /// Keeps a lease alive; false if the lease has ended.
    pub(super) async fn keep(&self, connection: &Connection, lease: &Arc<Lease>) -> Result<bool, Fault> {
        let sent = self.clock.now();
        match connection.keep_alive(lease.id).await {
            Ok(()) => {
                lease.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
                lease.key_numbers.free_ended(sent);
                lease.sweep(connection, sent).await;
                Ok(true)
            }
            Err(Fault::LeaseGone) => {
                self.mark_ended(lease);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Records that the server has ended this lease.
    pub(super) fn mark_ended(&self, lease: &Arc<Lease>) {
        lease.has_ended.store(true, Ordering::Release);
        self.table().retain(|_, other| !Arc::ptr_eq(other, lease));
    }

    /// Removes and returns all shared leases.
    pub(super) fn drain(&self) -> Vec<Arc<Lease>> {
        self.table().drain().map(|(_, lease)| lease).collect()
    }

    async fn grant(&self, connection: &Connection, seconds: i64, shared: bool) -> Result<Arc<Lease>, Fault> {
        let sent = self.clock.now();
        let granted = connection.grant(seconds).await?;
        // One wrong byte may read as a longer ttl. Holders believe in the requested one at most.
        let ttl = u64::try_from(granted.ttl().min(seconds)).unwrap_or(0);
        if ttl == 0 || granted.id() == 0 {
            return Err(Fault::Refused(ErrorKind::Protocol, "etcd granted a lease without a time or an id".into()));
        }
        Ok(Arc::new(Lease::new(granted.id(), Duration::from_secs(ttl), shared, sent, &self.connections)))
    }

    fn fresh(&self, seconds: i64) -> Option<Arc<Lease>> {
        self.table().get(&seconds).filter(|lease| self.is_fresh(lease)).cloned()
    }

    fn is_fresh(&self, lease: &Lease) -> bool {
        !lease.has_ended.load(Ordering::Acquire) && self.clock.now() < lease.stale_at()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<i64, Arc<Lease>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole_seconds(ttl: Duration) -> Result<i64, Fault> {
    // The engine has checked the ttl against the profile.
    let whole = i64::try_from(ttl.as_secs()).ok().filter(|seconds| *seconds > 0 && ttl.subsec_nanos() == 0);
    whole.ok_or_else(|| {
        Fault::Refused(
            ErrorKind::Internal,
            "the ttl is not in whole seconds, which the engine should have refused; please report this bug".into(),
        )
    })
}
