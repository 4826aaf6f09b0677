//! A name of its own for each test, on the server that all tests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::redis::{Literal, Redisson};
use dlock::{Clock, ErrorKind, Key, LockKey, Registry};
use dlock_contract::{Backend, Claim, Owner, Queue};
use dlock_testkit::holds::{claim_on, until};
use dlock_testkit::servers::shared;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Bench {
    pub(crate) key: LockKey,
    /// The name that another program writes by hand.
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let fresh = Owner::fresh().unwrap().to_hex();
        let key = LockKey::new("test", Key::text("stock:").value(&fresh)).unwrap();
        Self { key, name: format!("stock:{fresh}"), url: shared().redis().unwrap() }
    }

    pub(crate) async fn literal(&self) -> Literal {
        Literal::connect(&format!("{}?keys=literal", self.url), &Clock::system()).await.unwrap()
    }

    pub(crate) async fn redisson(&self) -> Redisson {
        Redisson::connect(&format!("{}?layout=redisson", self.url), &Clock::system()).await.unwrap()
    }

    /// As a program connects it.
    pub(crate) async fn registry(&self, parameter: &str) -> Registry {
        let registry = Registry::new();
        registry.connect("shared", &format!("{}?{parameter}", self.url)).await.unwrap();
        registry.set_default("shared").unwrap();
        registry
    }

    /// The key as a program writes it.
    pub(crate) fn text(&self) -> Key {
        Key::text("stock:").value(&self.name["stock:".len()..])
    }

    pub(crate) fn claim(&self, ttl: Duration) -> Arc<Claim> {
        claim_on(&self.key, ttl, |_| ())
    }

    pub(crate) fn raw(&self) -> redis::Connection {
        redis::Client::open(&*self.url).unwrap().get_connection().unwrap()
    }

    /// The value under the name in the server, without the lease; `None` if there is none.
    pub(crate) fn value(&self) -> Option<Vec<u8>> {
        redis::cmd("DUMP").arg(&self.name).query(&mut self.raw()).unwrap()
    }

    pub(crate) fn left(&self) -> i64 {
        redis::cmd("PTTL").arg(&self.name).query(&mut self.raw()).unwrap()
    }

    /// All names that contain this lock's name, except for the queue's memory of foreign clients, which lasts for a
    /// minute.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg(format!("*{}*", self.name)).query(&mut self.raw()).unwrap();
        keys.retain(|key| !self.is_memory(key));
        keys.sort();
        keys
    }

    fn is_memory(&self, key: &str) -> bool {
        let is = crate::names::is_ours(key) && key.ends_with(":x");
        assert!(!is || (1..=60_000).contains(&redis::cmd("PTTL").arg(key).query::<i64>(&mut self.raw()).unwrap()));
        is
    }

    /// Waits until nothing is left.
    pub(crate) async fn empty(&self) {
        let end = Instant::now() + LONG;
        while !self.keys().is_empty() {
            assert!(Instant::now() < end, "{:?}", self.keys());
            tokio::time::sleep(5 * MS).await;
        }
    }

    /// Asserts that the value under the name is refused as no lock, and stays as it is.
    pub(crate) async fn conflicts(&self, store: &impl Backend) {
        let before = self.value();
        for queue in [Queue::Leave, until()] {
            let claim = self.claim(LONG);
            let error = store.try_acquire(&claim, queue).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::KeyConflict);
            assert!(!error.is_retryable());
            store.abandon(&claim).await.unwrap();
        }
        assert_eq!(*store.look(&self.key).await.unwrap_err().kind(), ErrorKind::KeyConflict);
        assert_eq!((self.value(), self.keys()), (before, vec![self.name.clone()]));
        let _: () = redis::cmd("DEL").arg(&self.name).query(&mut self.raw()).unwrap();
    }
}
