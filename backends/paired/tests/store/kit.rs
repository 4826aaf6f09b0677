//! A pair on the shared servers, behind proxies of its own, and both stores as they are without it.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Claim, Error, ErrorKind, Hold, HoldId, LockKey, Queue, Result};
use dlock_paired::{GateDown, Paired};
use dlock_store::Clock;
use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy};

/// Longer than any of these tests.
pub(crate) const TTL: Duration = Duration::from_secs(60);

/// The longest time for something quick, on a machine that is busy with something else.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// One of the two stores, and the way to it.
pub(crate) struct Member {
    /// Around the proxy.
    pub(crate) store: Arc<dyn Backend>,
    proxy: Proxy,
    url: String,
}

pub(crate) struct Kit {
    pub(crate) gate: Member,
    pub(crate) authority: Member,
}

impl Kit {
    /// A Redis and a lease row of MariaDB.
    pub(crate) async fn new() -> Self {
        let urls = tokio::task::spawn_blocking(|| (shared().redis().unwrap(), shared().mariadb().unwrap()));
        let (redis, mariadb) = urls.await.unwrap();
        Self { gate: Member::new(&redis).await, authority: Member::new(&mariadb).await }
    }

    /// The same stores with their parts changed.
    pub(crate) async fn the_other_way_round() -> Self {
        let Self { gate, authority } = Self::new().await;
        Self { gate: authority, authority: gate }
    }

    /// Another client of both stores.
    pub(crate) async fn pair(&self, gate_down: GateDown) -> Paired {
        let (gate, authority) = (open(&self.gate.url).await, open(&self.authority.url).await);
        Paired::builder(gate, authority).gate_down(gate_down).build().unwrap()
    }
}

impl Member {
    async fn new(url: &str) -> Self {
        let (proxy, through) = Proxy::in_front_of(url).unwrap();
        Self { store: open(url).await, proxy, url: through }
    }

    /// Who holds a lock there.
    pub(crate) async fn holder(&self, claim: &Claim) -> Holder {
        match self.store.look(&claim.key).await.unwrap().holders.first() {
            None => Holder::Nobody,
            Some(holder) if holder.id == Some(HoldId::of(&claim.owner)) => Holder::Ours,
            Some(_) => Holder::Other,
        }
    }

    /// Waits until the lock has this holder there.
    pub(crate) async fn until(&self, claim: &Claim, wanted: Holder) {
        let kind = &self.store.profile().kind;
        assert!(self.becomes(claim, wanted).await, "in {kind} the lock has not become {wanted:?}");
    }

    /// Whether the lock soon has this holder there.
    pub(crate) async fn becomes(&self, claim: &Claim, wanted: Holder) -> bool {
        let clock = Clock::system();
        let end = clock.now().after(SOON);
        while self.holder(claim).await != wanted {
            if clock.now() >= end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }

    /// Another owner takes the lock there.
    pub(crate) async fn taken_by_another(&self, key: &LockKey) -> Hold {
        let other = dlock_testkit::holds::claim_on(key, TTL, |_| ());
        match self.store.try_acquire(&other, Queue::Leave).await.unwrap() {
            Attempt::Acquired(hold) => hold,
            _ => panic!("the lock is held in {}", self.store.profile().kind),
        }
    }

    /// Takes the lock from its holder there.
    pub(crate) async fn evict(&self, claim: &Arc<Claim>) {
        self.store.abandon(claim).await.unwrap();
    }

    /// Through the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn cut(&self, how: Mode) {
        self.proxy.set(how);
    }

    pub(crate) fn mend(&self) {
        self.proxy.set(Mode::Pass);
    }
}

/// Who holds a lock in one of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    Ours,
    Other,
}

/// A client. A busy machine may be slow to open it.
pub(crate) async fn open(url: &str) -> Arc<dyn Backend> {
    let clock = Clock::system();
    let end = clock.now().after(SOON);
    loop {
        match try_open(url, &clock).await {
            Ok(client) => return client,
            Err(error) => assert!(error.is_retryable() && clock.now() < end, "{error}"),
        }
    }
}

async fn try_open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(match url.split_once("://").unwrap().0 {
        "redis" => Arc::new(dlock_redis::Redis::connect(url, clock).await?) as Arc<dyn Backend>,
        _ => Arc::new(dlock_mysql::lease::open(url, clock).await?),
    })
}

/// A request as the engine makes it: it is given up after a while, which is an outage.
pub(crate) async fn bounded<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(Duration::from_secs(5), request).await;
    answer.unwrap_or_else(|_| Err(Error::outage("no answer")))
}

/// Abandons a claim as the engine does: until the stores confirm it.
pub(crate) async fn abandon(pair: &dyn Backend, claim: &Arc<Claim>) {
    let clock = Clock::system();
    let end = clock.now().after(SOON);
    while let Err(error) = bounded(pair.abandon(claim)).await {
        assert!(*error.kind() == ErrorKind::Outage && clock.now() < end, "an abandon failed: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
