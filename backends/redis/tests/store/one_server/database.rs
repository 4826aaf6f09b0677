//! An empty database of a real server, and helpers for claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dlock::Clock;
use dlock::backends::redis::Redis;
use dlock_contract::{Attempt, Backend, Claim, Hold, Signal, Standing, Wake};
use dlock_testkit::holds::{claim_on, key};
use dlock_testkit::servers::{self, Instance, shared};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longer than any test: no lease ends by itself.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A fresh owner's claim that has its lease of an hour from the grant on. Of other claims a push grants a second only, until the
/// first renewal, and a machine may be slower than that.
pub(crate) fn unrenewed(text: &str) -> Arc<Claim> {
    claim_on(&key(text), HOUR, |claim| claim.renewed = false)
}

/// An empty database, and the server under it if it is the test's own.
pub(crate) struct Database<S = ()> {
    pub(crate) url: String,
    pub(crate) server: S,
}

impl Database {
    /// A database of the shared server, for tests that do not disturb others.
    pub(crate) fn shared() -> Self {
        static LAST: AtomicU8 = AtomicU8::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(number < 16, "a server has 16 databases; the other tests need servers of their own");
        let url = format!("{}{number}", shared().redis().unwrap());
        let database = Self { url, server: () };
        // A server from outside may have met this test before.
        let _: () = redis::cmd("FLUSHDB").query(&mut database.raw()).unwrap();
        database
    }
}

impl Database<Instance> {
    /// One of a server that the test may disturb.
    pub(crate) fn own(options: &[&str]) -> Self {
        let extra = options.iter().map(ToString::to_string).collect();
        let server = Instance::start(servers::Redis { extra, ..servers::Redis::default() }).unwrap();
        Self { url: server.url(), server }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }
}

impl<S> Database<S> {
    /// A connection of the test itself.
    pub(crate) fn raw(&self) -> redis::Connection {
        redis::Client::open(&*self.url).unwrap().get_connection().unwrap()
    }

    /// Ends the connection of dlock's that was opened last.
    pub(crate) fn kill_latest(&self) {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut self.raw()).unwrap();
        let ours = list.lines().filter(|line| line.contains("lib-name=dlock") || line.contains(" resp=3"));
        let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok();
        let latest = ours.filter_map(id).max().expect("a connection");
        let killed: u64 = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(latest).query(&mut self.raw()).unwrap();
        assert_eq!(killed, 1);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.raw()).unwrap();
        // A note of the store, which belongs to no lock.
        keys.retain(|key| key != "dl1:forms");
        keys.sort();
        keys
    }

    pub(crate) async fn open(&self) -> Redis {
        Redis::connect(&self.url, &Clock::system()).await.unwrap()
    }
}

/// The hold that a wake brings, within so long.
pub(crate) async fn granted(wake: &mut Wake, limit: Duration) -> Option<Hold> {
    match tokio::time::timeout(limit, wake.signal.as_mut().unwrap()).await {
        Ok(Ok(Signal::Granted(hold))) => Some(hold),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

pub(crate) fn is_contended(attempt: dlock::Result<Attempt>) -> bool {
    matches!(attempt.unwrap(), Attempt::Contended(_))
}

/// Renews, and forgets from when the answers count.
pub(crate) async fn renew(redis: &Redis, holds: &[&Hold]) -> Vec<Standing> {
    redis
        .renew(holds)
        .await
        .into_iter()
        .map(|standing| match standing.unwrap() {
            // The instant is another one each time.
            Standing::Renewed(validity) => {
                Standing::Renewed(dlock_contract::Validity::new(Clock::manual().now(), validity.granted))
            }
            Standing::Lost => Standing::Lost,
        })
        .collect()
}
