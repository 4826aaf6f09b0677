//! Servers, a raw client that reads the store without the backend, and claims.

use std::sync::Arc;
use std::time::Duration;

use dlock::backends::zookeeper::ZooKeeper;
use dlock::backends::zookeeper::client::{Acls, Client, CreateMode, Error as ClientError};
use dlock::{Clock, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Hold, Signal, Wake};
use dlock_testkit::holds::{claim_on, until};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;

/// No session of this length ends in a test, also on a machine that is slow and busy.
pub(crate) const TTL: Duration = Duration::from_secs(15);

/// The URL of the server that all tests share.
pub(crate) fn shared() -> String {
    servers::shared().zookeeper().unwrap()
}

/// A server that the test may disturb.
pub(crate) fn own() -> Instance {
    Instance::start(servers::ZooKeeper::default()).unwrap()
}

pub(crate) async fn open(url: &str) -> dlock::Result<ZooKeeper> {
    ZooKeeper::open(url, &Clock::system()).await
}

/// The same, if it must be there. A busy machine may be slow to answer a new client.
pub(crate) async fn opened(url: &str) -> ZooKeeper {
    answered(async || open(url).await).await
}

/// Asks until there is an answer. On a busy machine a request may wait for a new connection for longer than it does.
pub(crate) async fn answered<T>(ask: impl AsyncFn() -> dlock::Result<T>) -> T {
    let mut answer = Err(dlock::Error::outage("not asked yet"));
    let asked = wait_until("an answer", async || {
        answer = ask().await;
        answer.as_ref().map_or_else(|error| !error.is_retryable(), |_| true)
    });
    let in_time = asked.await;
    answer.unwrap_or_else(|error| panic!("{error}: {in_time:?}"))
}

/// A backend of its own: as good as another process.
pub(crate) async fn process() -> ZooKeeper {
    opened(&shared()).await
}

/// A client beside the backend.
pub(crate) async fn raw(url: &str) -> Client {
    // A test may block its runtime for as long as another tool takes to start.
    let connector = Client::connector().with_session_timeout(Duration::from_secs(120));
    connector.connect(url.strip_prefix("zk://").unwrap().split('?').next().unwrap()).await.unwrap()
}

/// A lock that no other test uses.
pub(crate) fn lock(name: &'static str) -> LockKey {
    LockKey::new(&format!("t{}", fastrand::u64(..)), Key::text(name)).unwrap()
}

pub(crate) fn claim(key: &LockKey) -> Arc<Claim> {
    claim_on(key, TTL, |_| ())
}

/// A claim whose session outlives the test: what it leaves must not go by itself.
pub(crate) fn long_claim(key: &LockKey) -> Arc<Claim> {
    claim_on(key, TTL * 20, |_| ())
}

/// The hold that the only waiter gets: it does not have to ask. On a busy machine the server may be silent for too long, and then it
/// asks again, as the engine does.
pub(crate) async fn granted(store: &ZooKeeper, claim: &Arc<Claim>, wake: &mut Wake) -> Hold {
    let error = match wake.signal.as_mut().unwrap().await {
        Ok(Signal::Granted(hold)) => return hold,
        Ok(Signal::Ask) => panic!("it has to ask"),
        Err(error) => error,
    };
    assert!(error.is_retryable(), "{error}");
    let mut hold = None;
    let asked = wait_until("the lock", async || {
        if let Ok(Attempt::Acquired(got)) = store.try_acquire(claim, until()).await {
            hold = Some(got);
        }
        hold.is_some()
    });
    asked.await.unwrap();
    hold.unwrap()
}

/// Where a lock stands.
pub(crate) fn path(store: &ZooKeeper, key: &LockKey) -> String {
    store.identify(key).unwrap().names().remove(0)
}

/// The names of the nodes below a path, by their numbers.
pub(crate) async fn line(client: &Client, path: &str) -> Vec<String> {
    let mut children = match client.list_children(path).await {
        Err(ClientError::NoNode) => Vec::new(),
        listed => listed.unwrap(),
    };
    children.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
    children
}

/// A node as another tool makes it.
pub(crate) async fn put(client: &Client, path: &str, prefix: &str) -> String {
    client.mkdir(path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let prefix = format!("{path}/{prefix}");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(&prefix, b"theirs", &options).await.unwrap();
    format!("{prefix}{sequence}")
}
