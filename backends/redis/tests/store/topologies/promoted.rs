//! A server that was the primary, was a replica meanwhile, and is the primary again: what the other one granted last it
//! may not have heard of.

use std::collections::BTreeSet;
use std::time::Duration;

use dlock::ErrorKind;
use dlock::backends::redis::Redis;
use dlock_contract::{Attempt, Backend, Released, Standing};
use dlock_testkit::block_until;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{Instance, RedisSentinels};

use super::cluster::{cluster, key_at};
use super::forgetful::{goes_on, held_back};
use super::sentinel::{LIMIT, fail_over, set};
use super::{MS, SECOND, attempt, blocking, name, open, standing_soon, take_soon, with};
use crate::names::RIGHTS;

pub(crate) fn is_a_replica(server: &Instance) -> bool {
    server.ask("INFO replication").is_ok_and(|info| info.contains("master_link_status:up"))
}

/// Orders the sentinels to make another server the primary.
pub(crate) fn order(set: &RedisSentinels) {
    let old = set.primary().unwrap().port();
    // They have to know the replica as one first. They give a failover up for which a busy server is too slow, and do not try an
    // ordered one again.
    let orders = || {
        let is_ordered = set.sentinels[0].ask("SENTINEL FAILOVER main").is_ok();
        let is_done = || set.primary().is_some_and(|server| server.port() != old);
        let waits = |_| {
            std::thread::sleep(100 * MS);
            is_done()
        };
        is_ordered && (0..100).any(waits)
    };
    block_until("an ordered failover", orders).unwrap();
}

/// The ttl of a lock that nobody holds any longer. The guard lasts as long, and no test is that slow.
const LONG_AGO: Duration = Duration::from_secs(3600);

/// Has asked for a lock of that ttl.
async fn has_locked(redis: &Redis) {
    let hold = take(redis, &claim("k", LONG_AGO)).await;
    redis.release(&hold).await.unwrap();
}

/// Idle until now, it is refused by the guard. Returns the time that the guard still lasts.
async fn refused(redis: &Redis) -> Duration {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        match attempt(redis, &claim("k", SECOND)).await {
            Ok(answer) => panic!("{answer:?} from a server that was a replica meanwhile"),
            Err(error) if error.to_string().contains("failover_guard") => {
                assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
                return error.told_after().expect("it says how long");
            }
            // The connection was closed.
            Err(error) => assert!(error.is_retryable() && std::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(20 * MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_failover_is_no_restart_of_long_ago() {
    let set = set(1).await;
    let redis = open(&set.url()).await;
    has_locked(&redis).await;
    let set = fail_over(set).await;
    let (set, before) = blocking(move || {
        let old = &set.servers[0];
        old.restart().unwrap();
        old.ask(&format!("REPLICAOF 127.0.0.1 {}", set.servers[1].port())).unwrap();
        block_until("the old primary follows", || is_a_replica(old)).unwrap();
        let before = std::time::Instant::now();
        order(&set);
        (set, before)
    })
    .await;
    // By the first failover, or by the restart, less is left.
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let left = refused(&redis).await;
        if left + before.elapsed() >= LONG_AGO {
            break;
        }
        assert!(std::time::Instant::now() < end, "{left:?} left, {:?} after the failover", before.elapsed());
        tokio::time::sleep(20 * MS).await;
    }
    drop(set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ordered_failovers_lead_back_to_a_server_that_has_missed_something() {
    let set = set(1).await;
    // The sentinels tell it nothing by themselves: it is the server's history that says so.
    for sentinel in &set.sentinels {
        sentinel.ask("ACL SETUSER asks reset on >pw +@all -subscribe").unwrap();
    }
    let redis = open(&with(&set.url(), "sentinel_user=asks&sentinel_password=pw")).await;
    has_locked(&redis).await;
    let set = blocking(move || {
        order(&set);
        block_until("the old primary follows", || is_a_replica(&set.servers[0])).unwrap();
        order(&set);
        set
    })
    .await;
    refused(&redis).await;
    drop(set);
}

/// Its connections stay open, and nothing was sent meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_a_replica_for_a_moment_is_seen_over_open_connections() {
    let start = || blocking(|| Instance::start(dlock_testkit::servers::Redis::default()).unwrap());
    let (server, other) = (start().await, start().await);
    let redis = open(&server.url()).await;
    let bold = open(&with(&server.url(), "failover_guard=off")).await;
    for store in [&redis, &bold] {
        has_locked(store).await;
    }
    let (server, other) = blocking(move || {
        let connected = |server: &Instance| {
            let all = server.ask("CLIENT LIST").unwrap();
            let ours: Vec<_> = all.lines().filter(|line| line.contains(" resp=3")).collect();
            // The server lists them in no fixed order.
            ours.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let before = connected(&server);
        assert!(before.len() >= 2);
        for (replica, primary) in [(&other, &server), (&server, &other)] {
            replica.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port())).unwrap();
            block_until("it follows", || is_a_replica(replica)).unwrap();
            replica.ask("REPLICAOF NO ONE").unwrap();
        }
        assert_eq!(connected(&server), before);
        (server, other)
    })
    .await;
    // The other server grants a lock that this one does not know.
    take(&open(&other.url()).await, &claim("k", 3 * SECOND)).await;
    refused(&redis).await;
    take(&bold, &claim("bold", SECOND)).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_info_believes_the_sentinels() {
    let set = set(1).await;
    for server in &set.servers {
        server.ask(&format!("ACL SETUSER blind reset on >pw {RIGHTS} +@all -info")).unwrap();
    }
    let redis = open(&set.url().replace("://", "://blind:pw@")).await;
    has_locked(&redis).await;
    let set = fail_over(set).await;
    refused(&redis).await;
    drop(set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_that_may_evict_locks_grants_none() {
    let set = set(1).await;
    let redis = open(&with(&set.url(), "failover_guard=off&restart_guard=off")).await;
    let bold = open(&with(&set.url(), "failover_guard=off&restart_guard=off&eviction=allow")).await;
    let hold = take(&redis, &claim("held", 2 * LIMIT)).await;
    set.servers[1].ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    let set = blocking(move || {
        order(&set);
        set
    })
    .await;
    assert!(matches!(standing_soon(&redis, &hold, LIMIT).await, Standing::Renewed(_)));
    let end = std::time::Instant::now() + LIMIT;
    loop {
        match attempt(&redis, &claim("k", SECOND)).await {
            Err(error) if matches!(error.kind(), ErrorKind::ConfigInvalid { .. }) => break,
            // The old one goes on until it hears of it.
            Ok(Attempt::Acquired(early)) => drop(redis.release(&early).await),
            _ => {}
        }
        assert!(std::time::Instant::now() < end, "not refused within {LIMIT:?}");
    }
    take_soon(&bold, &claim("k", SECOND), LIMIT).await;
    // A lock that is held goes on.
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    set.servers[1].ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    take_soon(&redis, &claim("again", SECOND), LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_takeover_there_and_back_keeps_the_slots_back() {
    let cluster = cluster(3, 1).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let redis = open(&cluster.url()).await;
    let bold = open(&with(&cluster.url(), "failover_guard=off")).await;
    for store in [&redis, &bold] {
        for key in [&mine, &other] {
            let hold = take_soon(store, &claim(key, LIMIT), LIMIT).await;
            store.release(&hold).await.unwrap();
        }
    }
    let there = cluster.clone();
    let stored = name(&mine);
    blocking(move || {
        for (to, from) in [(3, 0), (0, 3)] {
            block_until("a replica follows", || is_a_replica(&there.nodes[to])).unwrap();
            there.nodes[to].ask("CLUSTER FAILOVER TAKEOVER").unwrap();
            block_until("the other one follows", || is_a_replica(&there.nodes[from])).unwrap();
        }
        block_until("all know", || matches!(there.owner_of(&stored), Ok(0))).unwrap();
        // As the end of whatever has kept the servers apart.
        for node in &there.nodes {
            let _ = node.ask("CLIENT KILL TYPE normal");
        }
    })
    .await;
    held_back(&redis, &mine).await;
    goes_on(&redis, &other).await;
    take_soon(&bold, &claim(&mine, SECOND), LIMIT).await;
}
