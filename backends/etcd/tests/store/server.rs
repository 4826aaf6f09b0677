//! Private servers, a raw client that reads the store without the backend, and a small stand-in for the engine.

use std::sync::Arc;
use std::time::Duration;

use dlock::backends::etcd::Etcd;
use dlock::backends::etcd::client::{Client, GetOptions};
use dlock::{Clock, Key, LockKey};
use dlock_contract::{Attempt, Backend, BootInstant, Claim, Hold, Queue, Wake};
use dlock_testkit::holds::claim_on;
use dlock_testkit::servers::{self, Instance};

/// A server that the test may disturb. Its elections are short: the shortest ttl is one second.
pub(crate) fn own() -> Instance {
    Instance::start(servers::Etcd::default()).unwrap()
}

/// As the backend wants it.
pub(crate) fn url(server: &Instance) -> String {
    format!("etcd://{}", server.addr())
}

/// The URL of the server that all tests share.
pub(crate) fn shared() -> String {
    servers::shared().etcd().unwrap().replace("http://", "etcd://")
}

/// A backend of its own: as good as another process.
pub(crate) async fn process() -> Etcd {
    Etcd::open(&shared(), &Clock::system()).await.unwrap()
}

/// A client beside the backend.
pub(crate) async fn raw() -> Client {
    Client::connect([shared().replace("etcd://", "http://")], None).await.unwrap()
}

/// A lock that no other test uses.
pub(crate) fn lock(name: &'static str) -> LockKey {
    LockKey::new(&format!("t{}", fastrand::u64(..)), Key::text(name)).unwrap()
}

/// No lease of this length ends in a test, also on a machine that is slow and busy.
pub(crate) const TTL: Duration = Duration::from_secs(90);

/// Shorter than [`TTL`]: a waiter whose own lease ends hears of that too. Only a waiter that was not told comes near it.
pub(crate) const NEWS: Duration = Duration::from_secs(45);
/// Longer than a test waits: what an abandon leaves must not go by itself.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn claim(key: &LockKey) -> Arc<Claim> {
    claim_for(key, TTL, true)
}

/// A claim whose lease outlives the test. What is left behind must not go by itself, also on a machine that is slow.
pub(crate) fn long_claim(key: &LockKey) -> Arc<Claim> {
    claim_for(key, LONG, true)
}

pub(crate) fn claim_for(key: &LockKey, ttl: Duration, renewed: bool) -> Arc<Claim> {
    claim_on(key, ttl, |claim| claim.renewed = renewed)
}

/// The names of a lock's keys, oldest first.
pub(crate) async fn line(key: &LockKey) -> Vec<String> {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(dlock::backends::etcd::client::SortTarget::Create, dlock::backends::etcd::client::SortOrder::Ascend);
    let found = raw().await.get(prefix(key), Some(options)).await.unwrap();
    found.kvs().iter().map(|key| key.key_str().unwrap().to_owned()).collect()
}

pub(crate) fn prefix(key: &LockKey) -> String {
    format!("{}/", key.as_str().replace('/', "%2F"))
}

pub(crate) fn soon() -> BootInstant {
    Clock::system().now().after(Duration::from_secs(30))
}

/// Asks once without joining the queue.
pub(crate) async fn ask(process: &Etcd, claim: &Arc<Claim>) -> Option<Hold> {
    held(process.try_acquire(claim, Queue::Leave).await.unwrap())
}

/// Asks once and joins the queue.
pub(crate) async fn stand(process: &Etcd, claim: &Arc<Claim>) -> Result<Hold, Wake> {
    match process.try_acquire(claim, Queue::until(soon())).await.unwrap() {
        Attempt::Acquired(hold) => Ok(hold),
        Attempt::Contended(wake) => Err(wake),
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}

/// Waits as the engine does: for a notification, or until it is time to ask again.
pub(crate) async fn acquire(process: &Etcd, claim: &Arc<Claim>) -> Hold {
    let clock = Clock::system();
    loop {
        match stand(process, claim).await {
            Ok(hold) => return hold,
            Err(wake) => {
                let by = wake.ask_by.expect("a place in line must be kept");
                if let Some(signal) = wake.signal {
                    let _ = clock.timeout_at(by, signal).await.map(Result::unwrap);
                }
            }
        }
    }
}

pub(crate) fn held(attempt: Attempt) -> Option<Hold> {
    match attempt {
        Attempt::Acquired(hold) => Some(hold),
        Attempt::Contended(_) => None,
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}

/// Nothing comes of this future within a short while.
pub(crate) async fn is_quiet(future: &mut (impl Future + Unpin)) -> bool {
    tokio::time::timeout(Duration::from_millis(300), future).await.is_err()
}
