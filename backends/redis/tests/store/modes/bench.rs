//! A lock of its own for each test, on the server that all tests share.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Clock, Key, LockKey, Mode, OncePer};
use dlock_contract::{Attempt, Backend, Claim, Hold, Owner, Queue, Signal, Standing, Wake};
use dlock_testkit::holds::claim_on;
use dlock_testkit::lateness;
use dlock_testkit::servers::{self, Instance, shared};

pub(crate) use dlock_testkit::holds::{stand, until, wait};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longer than the longest stall of a machine, as a ttl and as a limit.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) key: LockKey,
    url: String,
    server: Option<Instance>,
}

impl Bench {
    pub(crate) fn shared() -> Self {
        Self::at(shared().redis().unwrap(), None)
    }

    /// A server that the test may disturb.
    pub(crate) fn own() -> Self {
        let server = Instance::start(servers::Redis::default()).unwrap();
        Self::at(server.url(), Some(server))
    }

    fn at(url: String, server: Option<Instance>) -> Self {
        lateness::watch();
        let fresh = Owner::fresh().unwrap().to_hex();
        Self { key: LockKey::new("test", Key::text("modes:").value(&fresh)).unwrap(), url, server }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.as_ref().unwrap().port()
    }

    pub(crate) async fn open(&self) -> Redis {
        Redis::connect(&self.url, &Clock::system()).await.unwrap()
    }

    /// As a process to which nothing can be pushed; of a server of its own.
    pub(crate) async fn open_polling(&self) -> Redis {
        self.acl(&format!("dlock on >pw resetkeys ~{} resetchannels -@all", crate::names::OURS));
        self.acl(
            "dlock +set +get +incrby +del +pexpire +pttl +exists +zadd +zpopmin +zrem +hset +hget +hdel +publish \
             +subscribe +time +role +eval +evalsha +zrange +zcard +zscore +hgetall",
        );
        let url = format!("redis://dlock:pw@127.0.0.1:{}/", self.port());
        Redis::connect(&url, &Clock::system()).await.unwrap()
    }

    /// Changes an account.
    pub(crate) fn acl(&self, rights: &str) {
        let words: Vec<_> = rights.split_whitespace().collect();
        let _: () = redis::cmd("ACL").arg("SETUSER").arg(&words).query(&mut self.raw()).unwrap();
    }

    pub(crate) fn claim(&self, mode: Mode, ttl: Duration) -> Arc<Claim> {
        claim_on(&self.key, ttl, |claim| claim.mode = mode)
    }

    pub(crate) fn fair(&self, ttl: Duration) -> Arc<Claim> {
        claim_on(&self.key, ttl, |claim| claim.fair = true)
    }

    /// A claim that has its whole lease from the grant on. Of other claims a push grants a second only, until the first renewal, and a
    /// machine may be slower than that.
    pub(crate) fn unrenewed(&self, mode: Mode) -> Arc<Claim> {
        claim_on(&self.key, LONG, |claim| (claim.mode, claim.renewed) = (mode, false))
    }

    pub(crate) fn fair_unrenewed(&self) -> Arc<Claim> {
        claim_on(&self.key, LONG, |claim| (claim.fair, claim.renewed) = (true, false))
    }

    pub(crate) fn run(&self, period: Duration, rerun: bool, ttl: Duration) -> Arc<Claim> {
        let once_per = OncePer::new(period).rerun(rerun);
        claim_on(&self.key, ttl, |claim| claim.once_per = Some(Box::new(once_per)))
    }

    /// The name in the server.
    pub(crate) fn name(&self) -> String {
        crate::names::of(&self.key)
    }

    pub(crate) fn raw(&self) -> redis::Connection {
        redis::Client::open(&*self.url).unwrap().get_connection().unwrap()
    }

    /// The server's keys of this lock, without its name.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg(format!("{}*", self.name())).query(&mut self.raw()).unwrap();
        keys.sort();
        keys.iter().map(|key| key.replace(&self.name(), "l")).collect()
    }

    /// Deletes all keys of this lock.
    pub(crate) fn clear(&self) {
        for key in self.keys() {
            let _: u64 = redis::cmd("DEL").arg(key.replacen('l', &self.name(), 1)).query(&mut self.raw()).unwrap();
        }
    }

    /// Waits until nothing is left, within so long and what this machine is late.
    pub(crate) async fn empty(&self, limit: Duration) {
        let start = Instant::now();
        while !self.keys().is_empty() {
            lateness::assert_within(limit, start, &format!("the end of {:?}", self.keys()));
            tokio::time::sleep(5 * MS).await;
        }
    }

    /// Takes the server's memory away: it refuses whatever may need some.
    pub(crate) fn starve(&self) {
        self.limit_memory("1");
        let error = redis::cmd("SET").arg("x").arg("y").query::<()>(&mut self.raw()).unwrap_err();
        assert_eq!(error.code(), Some("OOM"), "{error}");
    }

    pub(crate) fn feed(&self) {
        self.limit_memory("0");
    }

    fn limit_memory(&self, limit: &str) {
        let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", limit]).query(&mut self.raw()).unwrap();
    }

    /// How many clients listen to pushes.
    pub(crate) fn listeners(&self) -> usize {
        let list: String = redis::cmd("CLIENT").arg(&["LIST", "TYPE", "pubsub"]).query(&mut self.raw()).unwrap();
        list.lines().count()
    }

    pub(crate) fn left(&self) -> i64 {
        redis::cmd("PTTL").arg(self.name()).query(&mut self.raw()).unwrap()
    }

    /// How often the server was sent each command; those that scripts ran are among them.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.raw()).unwrap();
        let lines = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        lines.map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap())).collect()
    }
}

pub(crate) fn permits(most: u32) -> Mode {
    Mode::Permits(NonZeroU32::new(most).unwrap())
}

pub(crate) async fn ask(redis: &Redis, claim: &Arc<Claim>, queue: Queue) -> Option<Hold> {
    match redis.try_acquire(claim, queue).await.unwrap() {
        Attempt::Acquired(hold) => Some(hold),
        Attempt::Contended(_) => None,
        Attempt::AlreadyRun => panic!("already run"),
    }
}

pub(crate) async fn contended(redis: &Redis, claim: &Arc<Claim>) {
    assert!(ask(redis, claim, Queue::Leave).await.is_none());
}

/// The hold that a wake brings. A waiter that was silent for a second may have lost its place, and a push that is a tenth of a second
/// old is not trusted.
pub(crate) async fn granted(wake: &mut Wake) -> Hold {
    let before = Instant::now();
    let late = || lateness::verdict(before - 3 * SECOND, 100 * MS);
    // A place whose listener was late has no signal.
    let signal = wake.signal.as_mut().unwrap_or_else(|| panic!("no signal{}", late()));
    match tokio::time::timeout(LONG, signal).await.unwrap().unwrap() {
        Signal::Granted(hold) => hold,
        Signal::Ask => panic!("told to ask{}", late()),
    }
}

/// Asserts that so much time has passed since `before`, and not so much that the end of a ttl was waited for: that of each claim is
/// three seconds at least.
#[track_caller]
pub(crate) fn took(before: Instant, least: Duration) {
    assert!(before.elapsed() >= least, "{:?}", before.elapsed());
    lateness::assert_within(least + 1500 * MS, before, "the grant");
}

/// Has the wake brought nothing so far?
pub(crate) async fn silent(wake: &mut Wake) {
    assert!(tokio::time::timeout(50 * MS, wake.signal.as_mut().unwrap()).await.is_err());
}

pub(crate) async fn is_lost(redis: &Redis, hold: &Hold) -> bool {
    redis.renew(&[hold]).await.remove(0).unwrap() == Standing::Lost
}
