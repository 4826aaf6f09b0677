//! Connections for pushes that stay open and lead to the wrong server, or to none.

use std::sync::Arc;
use std::time::Instant;

use dlock::backends::redis::Redis;
use dlock_contract::{Attempt, Backend, Signal, Standing};
use dlock_testkit::holds::{claim, confirm, stand, take, until};
use dlock_testkit::servers::{self, Instance, RedisCluster};
use dlock_testkit::{Mode, Proxy, block_until, wait_until};

use super::cluster::key_at;
use super::{MS, SECOND, blocking, handed, name, open, take_soon, with};
use crate::names::CHANNELS;

/// Messages go to replicas too. A listener there, left from the time when it was the primary, is not among those that
/// are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_at_a_replica_believes_in_no_lock_that_another_one_was_handed() {
    let (old, new) = blocking(|| {
        let old = Instance::start(servers::Redis::default()).unwrap();
        let new = Instance::start(servers::Redis::with(&["--repl-diskless-sync-delay", "0"])).unwrap();
        new.ask(&format!("REPLICAOF 127.0.0.1 {}", old.port())).unwrap();
        (old, new)
    })
    .await;
    let url = |server: &Instance| with(&server.url(), "failover_guard=off&restart_guard=off");
    let (holder, there) = (open(&url(&old)).await, open(&url(&old)).await);
    let hold = take(&holder, &claim("k", 60 * SECOND)).await;
    let first = claim("k", 60 * SECOND);
    let mut hears = stand(&there, &first).await;
    let has_it = async || new.ask(&format!("ZCARD {}:q", name("k"))).unwrap() == "1";
    wait_until("the line is replicated", has_it).await.unwrap();
    new.ask("REPLICAOF NO ONE").unwrap();
    old.ask(&format!("REPLICAOF 127.0.0.1 {}", new.port())).unwrap();
    let follows = async || old.ask("INFO replication").unwrap().contains("master_link_status:up");
    wait_until("the old primary follows", follows).await.unwrap();

    let here = open(&url(&new)).await;
    let second = claim("k", 60 * SECOND);
    let mut next = stand(&here, &second).await;
    here.release(&hold).await.unwrap();
    // Both listen from the first moment; a second is long enough for what was published to arrive at the replica.
    let heard = tokio::time::timeout(SECOND, hears.signal.as_mut().unwrap());
    let confirmed = async {
        let held = handed(&here, &second, &mut next).await;
        confirm(&here, &held).await
    };
    let (news, standing) = tokio::join!(heard, confirmed);
    assert!(!matches!(news, Ok(Ok(Signal::Granted(_)))), "{news:?}");
    assert!(matches!(standing, Standing::Renewed(_)));
}

/// Lets `waiter` stand behind `holder` until it is handed the lock by a push, and looks at what that is worth.
async fn handed_by_push(holder: &Redis, waiter: &Redis, key: &str) {
    let handed = async || {
        let hold = take_soon(holder, &claim(key, 60 * SECOND), 60 * SECOND).await;
        let next = claim(key, 60 * SECOND);
        let asked = waiter.try_acquire(&next, until()).await;
        let released = async || holder.release(&hold).await.is_ok();
        wait_until("it is released", released).await.unwrap();
        let mut news = None;
        if let Ok(Attempt::Contended(mut wake)) = asked
            && let Some(signal) = &mut wake.signal
        {
            news = tokio::time::timeout(SECOND, signal).await.ok();
        }
        let granted = if let Some(Ok(Signal::Granted(given))) = news {
            let standing = confirm(waiter, &given).await;
            assert!(matches!(standing, Standing::Renewed(_)), "a grant that is none: {given:?}");
            true
        } else {
            false
        };
        let given_up = async || waiter.abandon(&next).await.is_ok();
        wait_until("it is given up", given_up).await.unwrap();
        granted
    };
    wait_until("a push brings the lock", handed).await.unwrap();
}

/// A replica takes subscriptions, and the client believes that all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_an_ordered_failover_in_a_cluster_pushes_come_from_the_new_primary() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 1, false, &[]).unwrap()).await);
    let (key, url) = (key_at(&cluster, 0), with(&cluster.url(), "failover_guard=off&restart_guard=off"));
    let (holder, waiter) = (open(&url).await, open(&url).await);
    handed_by_push(&holder, &waiter, &key).await;
    let (there, stored) = (cluster.clone(), name(&key));
    blocking(move || {
        there.wait_for_replica(3, 0).unwrap();
        let moved = || {
            let _ = there.nodes[3].ask("CLUSTER FAILOVER");
            std::thread::sleep(100 * MS);
            matches!(there.owner_of(&stored), Ok(3))
        };
        block_until("an ordered failover", moved).unwrap();
    })
    .await;
    handed_by_push(&holder, &waiter, &key).await;
}

/// As when a firewall forgets a connection on which nothing is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_for_pushes_that_died_silently_is_replaced() {
    let server = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (holder, waiter) = (open(&server.url()).await, open(&url).await);
    handed_by_push(&holder, &waiter, "k").await;
    // Only what is pushed is swallowed, and so only that connection is dead from now on.
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    for channel in server.ask(&format!("PUBSUB CHANNELS {CHANNELS}")).unwrap().lines() {
        server.ask(&format!("PUBLISH {channel} x")).unwrap();
    }
    let swallowed = async || proxy.swallowing() > 0;
    wait_until("a push is swallowed", swallowed).await.unwrap();
    proxy.set(Mode::Pass);
    assert_eq!(proxy.swallowing(), 1);
    handed_by_push(&holder, &waiter, "k").await;
}

/// All other slots would lose their pushes for a moment, again and again while the one server hears nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_of_a_cluster_that_pushes_nothing_gets_a_new_client_after_ten_seconds() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 0, true, &[]).unwrap()).await);
    let (holder, waiter) = (open(&cluster.url()).await, open(&cluster.url()).await);
    let keys = [0, 1].map(|node| key_at(&cluster, node));
    // Before the client is opened, so that a slow machine only makes the time longer.
    let since = Instant::now();
    let waiting = keys.each_ref().map(|key| claim(key, 60 * SECOND));
    let mut wakes = Vec::new();
    for (key, waiting) in keys.iter().zip(&waiting) {
        take(&holder, &claim(key, 60 * SECOND)).await;
        wakes.push(stand(&waiter, waiting).await);
    }
    let subscribed = || cluster.nodes[1].ask("CLIENT LIST TYPE pubsub").unwrap().split(' ').next().map(str::to_owned);
    let present = subscribed();
    assert!(present.as_ref().is_some_and(|present| present.starts_with("id=")));

    // The first server forgets the subscriber, who hears nothing of that.
    let (proxy, server) = (&cluster.proxies[0], &cluster.nodes[0]);
    proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    let channel = server.ask("PUBSUB SHARDCHANNELS").unwrap();
    assert_eq!(server.ask(&format!("SPUBLISH {channel} x")).unwrap(), "1");
    let swallowed = async || proxy.swallowing() > 0;
    wait_until("a push is swallowed", swallowed).await.unwrap();
    proxy.set(Mode::Pass);
    assert_eq!((proxy.swallowing(), server.ask("CLIENT KILL TYPE pubsub").unwrap().as_str()), (1, "1"));
    assert!(matches!(waiter.try_acquire(&waiting[0], until()).await.unwrap(), Attempt::Contended(_)));

    let replaced = async || subscribed() != present;
    wait_until("the client is replaced", replaced).await.unwrap();
    assert!(since.elapsed() >= 10 * SECOND, "{:?}", since.elapsed());
}
