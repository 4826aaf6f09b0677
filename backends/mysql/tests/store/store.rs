//! A store on a database, and the claims on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::mysql::GetLock;
use dlock::{Clock, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue};
use dlock_testkit::holds::claim_on;
use futures::future::LocalBoxFuture;

use crate::server::{Database, Kind};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Runs one case of `cases`.
pub(crate) async fn run<F>(kind: Kind, case: &str, body: F)
where
    F: FnOnce(Database) -> LocalBoxFuture<'static, ()>,
{
    body(Database::create(&kind.shared().unwrap(), case).await).await;
}

pub(crate) async fn open(database: &Database) -> GetLock {
    GetLock::open(&database.url(), &Clock::system()).await.unwrap()
}

pub(crate) fn key(database: &Database, text: &str) -> LockKey {
    LockKey::new(&database.name, Key::new().value(text)).unwrap()
}

impl Database {
    /// A claim in a namespace of the case's own.
    pub(crate) fn claim(&self, text: &str, ttl: Duration) -> Arc<Claim> {
        claim_on(&key(self, text), ttl, |_| ())
    }
}

/// Takes the lock as soon as the server gives it, and says how long that took.
pub(crate) async fn take_soon(store: &GetLock, claim: &Arc<Claim>) -> (Hold, Duration) {
    let started = Instant::now();
    loop {
        if let Attempt::Acquired(hold) = store.try_acquire(claim, Queue::Leave).await.unwrap() {
            return (hold, started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(10), "the lock was never freed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn until(wait: Duration) -> Queue {
    Queue::until(Clock::system().now().after(wait))
}

/// The session that holds the lock, asked of the server by another way than the backend's.
pub(crate) async fn session_of(database: &Database, text: &str) -> Option<u64> {
    session_of_name(database, key(database, text).as_str()).await
}

/// The same by the key's full name.
pub(crate) async fn session_of_name(database: &Database, name: &str) -> Option<u64> {
    let mut conn = database.connect().await;
    let sql = "SELECT CAST(IS_USED_LOCK(CONCAT('d1', SUBSTR(SHA2(?, 256), 1, 62))) AS UNSIGNED)";
    let (id,) = sqlx::query_as(sql).bind(name).fetch_one(&mut conn).await.unwrap();
    id
}
