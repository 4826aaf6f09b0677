//! A cluster whose nodes all live: slots that move, and locks in many slots.

use std::sync::Arc;
use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Key, Mode, Registry, Wait};
use dlock_contract::{Attempt, Backend, Exchange, Queue, Released, Standing};
use dlock_testkit::holds::{claim, claim_in, confirm, take, token};
use dlock_testkit::servers::{self, Instance, RedisCluster};
use dlock_testkit::wait_until;

use super::{MS, SECOND, attempt, blocking, handed, name, open, refusal, refuses, standing_soon, take_soon};
use crate::names::{self, FENCE};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn cluster(primaries: usize, replicas: usize) -> Arc<RedisCluster> {
    Arc::new(blocking(move || RedisCluster::start(primaries, replicas, false, &[])).await.unwrap())
}

pub(crate) fn until() -> Queue {
    Queue::until(Clock::system().now().after(60 * SECOND))
}

/// A key whose slot is at this node.
pub(crate) fn key_at(cluster: &RedisCluster, node: usize) -> String {
    (0..).map(|n| format!("key{n}")).find(|key| cluster.owner_of(&name(key)).unwrap() == node).unwrap()
}

/// Outages pass.
pub(crate) fn patient() -> dlock::Retry {
    let backoff = dlock::Backoff::new(20 * MS, 200 * MS);
    dlock::Retry { times: 100, backoff: Some(backoff) }
}

/// A slot on its way from one node to another, step by step.
pub(crate) struct Move {
    cluster: Arc<RedisCluster>,
    pub(crate) slot: u32,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Move {
    pub(crate) fn of(cluster: &Arc<RedisCluster>, key: &str) -> Self {
        let from = cluster.owner_of(&name(key)).unwrap();
        let to = (from + 1) % 3;
        let slot = cluster.nodes[from].ask(&format!("CLUSTER KEYSLOT {}", name(key))).unwrap().parse().unwrap();
        Self { cluster: cluster.clone(), slot, from, to }
    }

    pub(crate) fn begin(&self) {
        let Self { cluster, slot, from, to } = self;
        let (old, new) = (cluster.id(*from).unwrap(), cluster.id(*to).unwrap());
        cluster.nodes[*to].ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {old}")).unwrap();
        cluster.nodes[*from].ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {new}")).unwrap();
    }

    /// Moves the names that end so.
    pub(crate) fn carry(&self, ending: &str) -> usize {
        let Self { cluster, slot, from, to } = self;
        let keys = cluster.nodes[*from].ask(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).unwrap();
        let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty() && key.ends_with(ending)).collect();
        let port = cluster.nodes[*to].port();
        for key in &keys {
            cluster.nodes[*from].ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000")).unwrap();
        }
        keys.len()
    }

    pub(crate) fn finish(&self) {
        self.carry("");
        let new = self.cluster.id(self.to).unwrap();
        for node in [self.to, self.from, 3 - self.to - self.from] {
            self.cluster.nodes[node].ask(&format!("CLUSTER SETSLOT {} NODE {new}", self.slot)).unwrap();
        }
        self.cluster.wait_until_agreed().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_work_in_a_cluster_whose_nodes_all_live() {
    let cluster = cluster(3, 0).await;
    let url = cluster.url();
    several_locks_lie_in_several_slots(&url).await;
    a_process_hears_of_locks_in_many_slots(&url).await;
    each_slot_has_one_counter(&cluster).await;
    slots_move_under_held_locks(&cluster).await;
    a_release_in_mid_move_is_a_release(&cluster).await;
    slots_move_under_waiters(&cluster).await;
    scripts_and_connections_come_back(&cluster).await;
    the_wrong_url_is_refused(&cluster).await;
    a_slot_that_nobody_serves_is_an_outage(&cluster).await;
}

async fn several_locks_lie_in_several_slots(url: &str) {
    let registries = [Registry::new(), Registry::new()];
    for registry in &registries {
        registry.connect("redis", url).await.unwrap();
        registry.set_default("redis").unwrap();
    }
    let keys = || (0..12).map(|n| Key::text("account:").value(&n));
    let tasks = (0..8).map(|n| {
        let all = registries[n % 2].lock_all(keys());
        tokio::spawn(async move {
            let guards = all.ttl(10 * SECOND).wait(Wait::UpTo(LIMIT)).acquire().await.unwrap();
            tokio::time::sleep(5 * MS).await;
            guards.release().await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    for registry in registries {
        let report = registry.shutdown(SECOND).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    }
}

async fn a_process_hears_of_locks_in_many_slots(url: &str) {
    let (holder, waiter) = (open(url).await, open(url).await);
    let (mut holds, mut wakes) = (Vec::new(), Vec::new());
    for n in 0..20 {
        let key = format!("many{n}");
        holds.push(take(&holder, &claim(&key, LIMIT)).await);
        let waiting = claim(&key, LIMIT);
        let Attempt::Contended(wake) = waiter.try_acquire(&waiting, until()).await.unwrap() else { panic!() };
        assert!(wake.signal.is_some(), "pushes arrive");
        wakes.push((waiting, wake));
    }
    for (hold, (waiting, wake)) in holds.iter().zip(&mut wakes) {
        assert_eq!(holder.release(hold).await.unwrap(), Released::Released);
        let next = handed(&waiter, waiting, wake).await;
        assert!(token(&next) > token(hold));
        assert_eq!(waiter.release(&next).await.unwrap(), Released::Released);
    }
    waiter.close().await;
}

async fn each_slot_has_one_counter(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let before = counters(cluster);
    for _ in 0..3 {
        for n in 0..10 {
            let hold = take(&redis, &claim(&format!("many{n}"), SECOND)).await;
            redis.release(&hold).await.unwrap();
        }
    }
    assert_eq!(counters(cluster), before, "known slots need no further counters");
    let digits = |name: &String| {
        name.strip_prefix(FENCE).unwrap().strip_prefix(":{").unwrap().strip_suffix('}').unwrap().parse::<u32>()
    };
    assert!(before.iter().all(|name| digits(name).is_ok()), "{before:?}");
}

fn counters(cluster: &RedisCluster) -> Vec<String> {
    let mut found: Vec<String> = cluster
        .nodes
        .iter()
        .flat_map(|node| node.ask(&format!("KEYS {FENCE}*")).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| !name.is_empty())
        .collect();
    found.sort();
    found
}

pub(crate) async fn slots_move_under_held_locks(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let key = "moves";
    let hold = take(&redis, &claim(key, LIMIT)).await;
    let shares = [
        claim_in("moved", Mode::Read, LIMIT),
        claim_in("moving", Mode::Permits(std::num::NonZeroU32::new(2).unwrap()), LIMIT),
    ];
    let mut holds = Vec::new();
    for share in &shares {
        holds.push(take(&redis, share).await);
    }
    let (slot, slow) = (Move::of(cluster, key), Move::of(cluster, "moved"));
    for step in [&slot, &slow] {
        step.begin();
    }
    // Half of it is there: the lock at the new node and its counter at the old one, and the other way round.
    for ending in ["}", ""] {
        assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
        match attempt(&redis, &claim(key, LIMIT)).await {
            Ok(answer) => assert!(matches!(answer, Attempt::Contended(_)), "{answer:?}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        slot.carry(&format!(">{ending}"));
    }
    assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released, "a lock alone is released in mid-move");
    let next = take_soon(&redis, &claim(key, LIMIT), LIMIT).await;
    assert!(token(&next) > token(&hold));
    slot.finish();
    slow.finish();
    assert!(matches!(confirm(&redis, &next).await, Standing::Renewed(_)));
    assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
    for hold in &holds {
        assert!(matches!(standing_soon(&redis, hold, LIMIT).await, Standing::Renewed(_)));
        assert_eq!(redis.release(hold).await.unwrap(), Released::Released);
    }
    let after = take(&redis, &claim(key, SECOND)).await;
    assert!(token(&after) > token(&next), "the counter has moved too");
    redis.release(&after).await.unwrap();
}

/// It cannot ask for the next one where lock and counter are at two servers, and releases all the same.
pub(crate) async fn a_release_in_mid_move_is_a_release(cluster: &Arc<RedisCluster>) {
    let (redis, other) = (open(&cluster.url()).await, open(&cluster.url()).await);
    let former = take(&other, &claim("torn", LIMIT)).await;
    let waiter = claim("torn", LIMIT);
    let Attempt::Contended(mut wake) = redis.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
    other.release(&former).await.unwrap();
    let hold = handed(&redis, &waiter, &mut wake).await;
    assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
    let slot = Move::of(cluster, "torn");
    slot.begin();
    slot.carry(">}");
    let next = claim("torn", LIMIT);
    let Queue::Join { until, .. } = until() else { panic!() };
    let (released, asked) = redis.release_to(&hold, &next, until).await.unwrap();
    assert_eq!(released, Released::Released);
    slot.carry("");
    slot.finish();
    drop(asked);
    redis.abandon(&next).await.unwrap();
    let after = take_soon(&other, &claim("torn", LIMIT), LIMIT).await;
    assert!(token(&after) > token(&hold));
    other.release(&after).await.unwrap();
}

async fn slots_move_under_waiters(cluster: &Arc<RedisCluster>) {
    let registries = [Registry::new(), Registry::new()];
    for registry in &registries {
        registry.connect("redis", &cluster.url()).await.unwrap();
        registry.set_default("redis").unwrap();
    }
    let lock = |n: usize| {
        let key = Key::new().value(&"waited");
        registries[n].lock(key).ttl(LIMIT).wait(Wait::UpTo(LIMIT)).retry(patient())
    };
    let guard = lock(0).acquire().await.unwrap();
    let first = guard.fence().unwrap().get();
    let wait = |n: usize| {
        let asked = lock(n % 2).acquire();
        tokio::spawn(async move {
            let guard = asked.await.unwrap_or_else(|error| panic!("{error}"));
            let token = guard.fence().unwrap().get();
            guard.release().await.unwrap();
            token
        })
    };
    let waiters: Vec<_> = (0..4).map(wait).collect();
    let stored = names::of(guard.key());
    let queue = format!("{stored}:q");
    let queued = async || cluster.ask_owner(&queue, &format!("ZCARD {queue}")).unwrap() != "0";
    wait_until("a caller waits in the queue", queued).await.unwrap();
    let cluster = cluster.clone();
    let step = blocking(move || {
        let from = cluster.owner_of(&stored).unwrap();
        let slot = cluster.nodes[from].ask(&format!("CLUSTER KEYSLOT {stored}")).unwrap().parse().unwrap();
        let step = Move { cluster, slot, from, to: (from + 1) % 3 };
        step.begin();
        step.carry("");
        step
    })
    .await;
    let release = tokio::spawn(async move {
        tokio::time::sleep(300 * MS).await;
        guard.release().await
    });
    blocking(move || {
        std::thread::sleep(600 * MS);
        step.finish();
    })
    .await;
    release.await.unwrap().unwrap();
    let mut seen = vec![first];
    for waiter in waiters {
        seen.push(tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap());
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), seen.len(), "all tokens differ");
    for registry in registries {
        registry.shutdown(SECOND).await;
    }
}

async fn scripts_and_connections_come_back(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let hold = take(&redis, &claim("flush", LIMIT)).await;
    for request in ["SCRIPT FLUSH", "CLIENT KILL TYPE normal"] {
        for node in &cluster.nodes {
            // The asking connection is killed too, which is an error to it.
            let _ = node.ask(request);
        }
        assert!(matches!(standing_soon(&redis, &hold, LIMIT).await, Standing::Renewed(_)));
        assert!(matches!(attempt(&redis, &claim("flush", SECOND)).await.unwrap(), Attempt::Contended(_)));
    }
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}

async fn the_wrong_url_is_refused(cluster: &Arc<RedisCluster>) {
    let error = Redis::connect(&cluster.nodes[0].url(), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    let single = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let url = format!("redis-cluster://127.0.0.1:{}", single.port());
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    let nobody = Redis::connect("redis-cluster://127.0.0.1:1,127.0.0.1:2", &Clock::system()).await.unwrap_err();
    assert_eq!(*nobody.kind(), ErrorKind::Outage, "{nobody}");
}

async fn a_slot_that_nobody_serves_is_an_outage(cluster: &Arc<RedisCluster>) {
    let redis = open(&cluster.url()).await;
    let slot = Move::of(cluster, "gone");
    let is_unserved = |node: usize| {
        // Again and again: a node may hear once more of the slot's server, from a message that is older.
        let _ = cluster.nodes[node].ask(&format!("CLUSTER DELSLOTS {}", slot.slot));
        refuses(&cluster.nodes[node], &format!("GET {}", name("gone")), "CLUSTERDOWN")
    };
    wait_until("no node serves the slot", async || (0..cluster.nodes.len()).all(is_unserved)).await.unwrap();
    let error = refusal(&redis, &claim("gone", SECOND)).await;
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("CLUSTERDOWN")), "{error}");
    assert!(error.is_retryable() && error.to_string().contains("CLUSTERDOWN"), "{error}");
}
