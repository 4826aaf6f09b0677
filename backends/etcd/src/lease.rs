//! Leases. A process has one lease for each ttl, shared by its holds and its places in wait queues. A hold that is not
//! renewed has a lease of its own.
//!
//! A lease for each hold would cost two more commits per cycle and, with many holds, most of the throughput. A shared
//! lease is kept alive by renewals, and by attempts that find it stale. When nobody uses it any more, it ends by
//! itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Clock, ErrorKind, Result, Validity};
use etcd_client::{PutOptions, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
use super::seats::{Seat, Seats};

/// How many keys one transaction may name; the server's own bound is 128 by default.
pub(super) const BATCH: usize = 64;

/// The prefix of the epoch keys.
pub(super) const EPOCHS: &str = "dl1-epoch/";

/// Keys that may have been left behind, each with its owner's shard and with what deletes it.
pub(super) type Orphans = BTreeMap<(u8, Vec<u8>), Orphan>;

/// What deletes a key that may have been left behind. Until then nobody else uses its name.
#[derive(Clone)]
pub(super) struct Orphan {
    pub(super) deletes: Vec<TxnOp>,
    /// Not before this time: the key may have to stay so long.
    pub(super) due: BootInstant,
    pub(super) _seat: Arc<Seat>,
}

/// One lease in the store.
pub(super) struct Lease {
    pub(super) id: i64,
    /// The ttl that the server granted.
    ttl: Duration,
    /// Whether several holds share it. Then it is never revoked for one of them.
    pub(super) shared: bool,
    /// The time at which the last confirmed request left.
    confirmed: AtomicU64,
    gone: AtomicBool,
    /// The epoch keys' revisions as last seen: zero as long as there is no such key.
    epochs: [AtomicI64; 256],
    /// Keys whose deletion was not confirmed. Without another try the lease would keep them for ever.
    orphans: Mutex<Orphans>,
    /// By the beginning of the keys of a lock.
    seats: Mutex<HashMap<Vec<u8>, Seats>>,
    /// The highest revision of the store that this process has seen.
    seen: Arc<AtomicI64>,
}

impl Lease {
    fn new(id: i64, ttl: Duration, shared: bool, confirmed: BootInstant, seen: &Arc<AtomicI64>) -> Self {
        Self {
            id,
            ttl,
            shared,
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            gone: AtomicBool::new(false),
            epochs: [const { AtomicI64::new(0) }; 256],
            orphans: Mutex::default(),
            seats: Mutex::default(),
            seen: seen.clone(),
        }
    }

    pub(super) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    /// The validity of keys on this lease. It counts from the last confirmation of the lease, which may be before the
    /// attempt that asks.
    pub(super) fn validity(&self) -> Validity {
        Validity::new(BootInstant::from_nanos(self.confirmed.load(Ordering::Acquire)), self.ttl)
    }

    /// From this time on the lease must be kept alive.
    pub(super) fn stale_at(&self) -> BootInstant {
        self.validity().from.after(self.ttl / 3)
    }

    /// The key that every entering transaction of these owners compares. A change of this key makes all such
    /// transactions fail that are still under way. The key is on the lease itself, so it ends with the lease.
    ///
    /// There are 256 such keys. With only one, four tasks that abandoned all the time starved every other attempt.
    pub(super) fn epoch_key(&self, shard: u8) -> Vec<u8> {
        format!("{EPOCHS}{:016x}/{shard:02x}", self.id).into_bytes()
    }

    pub(super) fn epoch(&self, shard: u8) -> &AtomicI64 {
        &self.epochs[usize::from(shard)]
    }

    pub(super) fn bump(&self, shard: u8) -> TxnOp {
        TxnOp::put(self.epoch_key(shard), "", Some(PutOptions::new().with_lease(self.id)))
    }

    pub(super) fn seats(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Seats>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn orphans(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes keys that were left behind. If it fails, the next call tries again.
    async fn sweep(&self, connection: &Connection, now: BootInstant) {
        let mut orphans = Orphans::new();
        let mut operations = 0;
        for (name, orphan) in self.orphans().iter().filter(|(_, orphan)| orphan.due <= now) {
            // Each also needs its epoch.
            operations += orphan.deletes.len() + 1;
            if operations > BATCH && !orphans.is_empty() {
                break;
            }
            orphans.insert(name.clone(), orphan.clone());
        }
        if orphans.is_empty() {
            return;
        }
        let shards: BTreeSet<u8> = orphans.keys().map(|(shard, _)| *shard).collect();
        let deletes: Vec<_> = orphans.values().flat_map(|orphan| orphan.deletes.iter().cloned()).collect();
        let all: Vec<_> = deletes.iter().cloned().chain(shards.iter().map(|shard| self.bump(*shard))).collect();
        match connection.txn(Txn::new().and_then(all)).await {
            Ok(answer) => {
                let revision = answer.header().map_or(0, |header| header.revision());
                shards.iter().for_each(|shard| self.epoch(*shard).store(revision, Ordering::Release));
                let mut left = self.orphans();
                orphans.keys().for_each(|name| _ = left.remove(name));
            }
            // The epochs cannot be put now, but the locks can be freed. The keys stay orphans until the epochs are put.
            Err(Fault::NoSpace) => _ = connection.txn(Txn::new().and_then(deletes)).await,
            Err(_) => {}
        }
    }
}

/// The shared leases of this process, by the ttl asked for in seconds.
pub(super) struct Leases {
    clock: Clock,
    shared: Mutex<HashMap<i64, Arc<Lease>>>,
    seen: Arc<AtomicI64>,
}

impl Leases {
    pub(super) fn new(clock: &Clock, seen: Arc<AtomicI64>) -> Self {
        Self { clock: clock.clone(), shared: Mutex::default(), seen }
    }

    /// The shared lease for this ttl, with at least two thirds of it left.
    pub(super) async fn shared(self: &Arc<Self>, connection: &Connection, ttl: Duration) -> Result<Arc<Lease>, Fault> {
        let seconds = whole_seconds(ttl)?;
        if let Some(lease) = self.fresh(seconds) {
            return Ok(lease);
        }
        let (leases, own) = (self.clone(), connection.clone());
        connection.alone(async move { leases.revive(&own, seconds).await }).await
    }

    async fn revive(&self, connection: &Connection, seconds: i64) -> Result<Arc<Lease>, Fault> {
        // Another task may have done it while this one waited at the gate.
        if let Some(lease) = self.fresh(seconds) {
            return Ok(lease);
        }
        let standing = self.table().get(&seconds).cloned();
        if let Some(lease) = standing
            && self.keep(connection, &lease).await?
        {
            return Ok(lease);
        }
        let made = self.grant(connection, seconds, true).await?;
        let mut table = self.table();
        // Another runtime may have been faster. Then our lease stays without keys, and ends by itself.
        let winner = table.entry(seconds).and_modify(|lease| {
            if lease.gone.load(Ordering::Acquire) {
                *lease = made.clone();
            }
        });
        Ok(winner.or_insert(made).clone())
    }

    /// A lease for one hold only.
    pub(super) async fn own(&self, connection: &Connection, ttl: Duration) -> Result<Arc<Lease>, Fault> {
        self.grant(connection, whole_seconds(ttl)?, false).await
    }

    /// Whether the lease is alive with at least two thirds of its time left. Asks the store only if this is not known.
    pub(super) async fn freshen(self: &Arc<Self>, connection: &Connection, lease: &Arc<Lease>) -> Result<bool, Fault> {
        if self.is_fresh(lease) {
            return Ok(true);
        }
        let (leases, own, lease) = (self.clone(), connection.clone(), lease.clone());
        let freshen = async move { if leases.is_fresh(&lease) { Ok(true) } else { leases.keep(&own, &lease).await } };
        connection.alone(freshen).await
    }

    /// Keeps a lease alive; false if the lease has ended.
    pub(super) async fn keep(&self, connection: &Connection, lease: &Arc<Lease>) -> Result<bool, Fault> {
        let before = self.clock.now();
        match connection.keep_alive(lease.id).await {
            Ok(()) => {
                lease.confirmed.fetch_max(before.as_nanos(), Ordering::AcqRel);
                lease.seats().retain(|_, seats| seats.is_taken(before));
                lease.sweep(connection, before).await;
                Ok(true)
            }
            Err(Fault::LeaseGone) => {
                self.bury(lease);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The store says that this lease is over.
    pub(super) fn bury(&self, lease: &Arc<Lease>) {
        lease.gone.store(true, Ordering::Release);
        self.table().retain(|_, other| !Arc::ptr_eq(other, lease));
    }

    /// Takes all shared leases out.
    pub(super) fn drain(&self) -> Vec<Arc<Lease>> {
        self.table().drain().map(|(_, lease)| lease).collect()
    }

    async fn grant(&self, connection: &Connection, seconds: i64, shared: bool) -> Result<Arc<Lease>, Fault> {
        let before = self.clock.now();
        let granted = connection.grant(seconds).await?;
        let ttl = u64::try_from(granted.ttl()).unwrap_or(0);
        if ttl == 0 || granted.id() == 0 {
            return Err(Fault::Refused(ErrorKind::Protocol, "etcd granted a lease without a time or an id".into()));
        }
        Ok(Arc::new(Lease::new(granted.id(), Duration::from_secs(ttl), shared, before, &self.seen)))
    }

    fn fresh(&self, seconds: i64) -> Option<Arc<Lease>> {
        self.table().get(&seconds).filter(|lease| self.is_fresh(lease)).cloned()
    }

    fn is_fresh(&self, lease: &Lease) -> bool {
        !lease.gone.load(Ordering::Acquire) && self.clock.now() < lease.stale_at()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<i64, Arc<Lease>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole_seconds(ttl: Duration) -> Result<i64, Fault> {
    // The engine has already checked this against the profile.
    let whole = i64::try_from(ttl.as_secs()).ok().filter(|seconds| *seconds > 0 && ttl.subsec_nanos() == 0);
    whole.ok_or_else(|| {
        Fault::Refused(
            ErrorKind::Internal,
            "a ttl that is not in whole seconds has reached etcd; please report it".into(),
        )
    })
}
