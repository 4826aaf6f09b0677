//! Some nodes of a test's own, each behind a proxy.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::redlock::Redlock;
use dlock::{Clock, ErrorKind, Registry};
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue, Standing};
use dlock_testkit::servers::{Instance, Redis, WallClock, redlock_url};
use dlock_testkit::{Mode, Proxy, lateness, wait_until};

use crate::names::LOCKS;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Added to every promised bound, because the machine may be busy with something else.
pub(crate) const SLACK: Duration = Duration::from_secs(3);

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Instance>,
    pub(crate) proxies: Vec<Proxy>,
    /// Of the nodes, where a test sets them.
    clocks: Vec<WallClock>,
    query: &'static str,
}

impl Cluster {
    /// Five that sync every write, and vote from their start on.
    pub(crate) fn start() -> Self {
        Self::of(true, &[], "?max_ttl=10m")
    }

    /// The same, each with a wall clock of its own.
    pub(crate) fn with_clocks() -> Self {
        let clocks: Vec<_> = (0..5).map(|_| WallClock::new().unwrap()).collect();
        Self::of(true, &clocks, "?max_ttl=10m")
    }

    /// Five that forget everything in a restart.
    pub(crate) fn forgetful(query: &'static str) -> Self {
        Self::of(false, &[], query)
    }

    /// The same, each with a wall clock of its own.
    pub(crate) fn forgetful_with_clocks(query: &'static str) -> Self {
        let clocks: Vec<_> = (0..5).map(|_| WallClock::new().unwrap()).collect();
        Self::of(false, &clocks, query)
    }

    fn of(aof_always: bool, clocks: &[WallClock], query: &'static str) -> Self {
        lateness::watch();
        let recipe = |node: usize| Redis { aof_always, clock: clocks.get(node).cloned(), ..Redis::default() };
        let nodes = Instance::start_all((0..5).map(recipe)).unwrap();
        let (proxies, _) = Proxy::in_front_of_each(&redlock_url(&nodes)).unwrap();
        Self { nodes, proxies, clocks: clocks.to_vec(), query }
    }

    /// Sets the wall clocks of some nodes: so many seconds ahead, or behind.
    pub(crate) fn set_ahead(&self, which: impl IntoIterator<Item = usize>, seconds: i64) {
        which.into_iter().for_each(|node| self.clocks[node].set_ahead(seconds).unwrap());
    }

    /// Around the proxies.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", redlock_url(&self.nodes), self.query)
    }

    /// Through the proxies.
    pub(crate) fn far_url(&self) -> String {
        let proxies: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        format!("redlock://{}/{}", proxies.join(","), self.query)
    }

    pub(crate) async fn open(&self) -> Redlock {
        Redlock::connect(&self.url(), &Clock::system()).await.unwrap()
    }

    pub(crate) async fn open_far(&self) -> Redlock {
        Redlock::connect(&self.far_url(), &Clock::system()).await.unwrap()
    }

    /// As another process would have it.
    pub(crate) async fn registry(&self) -> Registry {
        let registry = Registry::new();
        registry.connect("store", &self.url()).await.unwrap();
        registry.set_default("store").unwrap();
        registry
    }

    pub(crate) fn set(&self, which: impl IntoIterator<Item = usize>, mode: Mode) {
        which.into_iter().for_each(|node| self.proxies[node].set(mode));
    }

    pub(crate) fn kill(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|node| self.nodes[node].kill9().unwrap());
    }

    pub(crate) fn restart(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|node| self.nodes[node].restart().unwrap());
    }

    /// The locks' keys on the nodes that are up, each with the number of its node.
    pub(crate) fn left(&self) -> BTreeSet<String> {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.pid().is_some());
        let keys = |(number, node): (usize, &Instance)| {
            let keys = node.ask(&format!("KEYS {LOCKS}")).unwrap();
            keys.lines().filter(|key| !key.is_empty()).map(|key| format!("{number} {key}")).collect::<Vec<_>>()
        };
        up.flat_map(keys).collect()
    }

    /// Waits until this key is on so many nodes. The answer of a majority is an answer; the other nodes may be a moment behind.
    pub(crate) async fn until_on(&self, name: &str, nodes: usize) {
        let is_on = |node: &&Instance| node.ask(&format!("EXISTS {name}")).unwrap() == "1";
        let all = format!("{name} is on {nodes} nodes");
        wait_until(&all, async || self.nodes.iter().filter(is_on).count() == nodes).await.unwrap();
    }

    /// How many scripts this node was sent so far.
    pub(crate) fn scripts(&self, node: usize) -> u64 {
        self.calls(node, "evalsha")
    }

    /// How often this node has run a command so far, in scripts too.
    pub(crate) fn calls(&self, node: usize, command: &str) -> u64 {
        let stats = self.nodes[node].ask("INFO commandstats").unwrap();
        let of_command = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&of_command)).unwrap_or("0");
        calls.split(',').next().unwrap().parse().unwrap()
    }

    /// Waits until this node has done what it was sent before. It reads from every connection before it reads from a newer
    /// one for the second time.
    pub(crate) fn wait_until_read(&self, node: usize) {
        for _ in 0..2 {
            self.nodes[node].ask("PING").unwrap();
        }
    }

    /// Fails if any entry is there after this time.
    pub(crate) async fn assert_empty_within(&self, bound: Duration) {
        let start = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            lateness::assert_within(bound, start, &format!("the end of {left:?}"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) async fn attempt(redlock: &Redlock, claim: &Arc<Claim>) -> dlock::Result<Attempt> {
    redlock.try_acquire(claim, Queue::Leave).await
}

/// Asks again while nodes are silent, as the engine does. On a busy machine one attempt may end with an outage.
async fn answered<T>(mut request: impl AsyncFnMut() -> dlock::Result<T>) -> T {
    let start = Instant::now();
    loop {
        match request().await {
            Ok(answer) => return answer,
            // Each request has a bound of its own.
            Err(error) if *error.kind() == ErrorKind::Outage => {
                lateness::assert_within(SLACK, start, &format!("an answer after {error}"));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Takes a lock that must be free.
pub(crate) async fn take(redlock: &Redlock, claim: &Arc<Claim>) -> Hold {
    match answered(async || attempt(redlock, claim).await).await {
        Attempt::Acquired(hold) => hold,
        answer => panic!("{answer:?}"),
    }
}

pub(crate) async fn is_contended(redlock: &Redlock, claim: &Arc<Claim>) -> bool {
    matches!(answered(async || attempt(redlock, claim).await).await, Attempt::Contended(_))
}

/// Renews one hold.
pub(crate) async fn confirm(redlock: &Redlock, hold: &Hold) -> Standing {
    answered(async || redlock.renew(&[hold]).await.remove(0)).await
}

/// Takes a lock that will soon be free, or whose nodes will soon have votes, by asking again and again as the engine
/// does.
pub(crate) async fn win(redlock: &Redlock, claim: &Arc<Claim>, bound: Duration) -> Hold {
    let start = Instant::now();
    loop {
        let answer = attempt(redlock, claim).await;
        if let Ok(Attempt::Acquired(hold)) = answer {
            return hold;
        }
        lateness::assert_within(bound, start, &format!("a grant (the last answer was {answer:?})"));
        tokio::time::sleep(Duration::from_millis(fastrand::u64(5..40))).await;
    }
}

/// Printed, and taken from the environment to repeat a trial.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("DLOCK_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("DLOCK_SEED={seed}");
    seed
}
