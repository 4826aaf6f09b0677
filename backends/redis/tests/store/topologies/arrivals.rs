//! A slot on its way to a server that forgets what it has granted already, or that had no slots before.

use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{claim, confirm};
use dlock_testkit::servers::RedisCluster;
use dlock_testkit::{block_until, wait_until};

use super::cluster::{Move, cluster, key_at};
use super::forgetful::{goes_on, held_back};
use super::sentinel::LIMIT;
use super::{attempt, blocking, name, open, take_soon, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_restarts_while_a_slot_comes_keeps_that_slot_back() {
    let cluster = cluster(3, 0).await;
    let (key, of_target, other) = (key_at(&cluster, 0), key_at(&cluster, 1), key_at(&cluster, 2));
    let bold = open(&with(&with(&cluster.url(), "restart_guard=off"), "failover_guard=off")).await;
    let (asking, late) = (open(&cluster.url()).await, open(&cluster.url()).await);
    let (moving, moved) = (cluster.clone(), key.clone());
    let step = blocking(move || {
        let step = Move::of(&moving, &moved);
        step.begin();
        step
    })
    .await;
    // The old server does not have it, so the new one grants it.
    let hold = take_soon(&bold, &claim(&key, 4 * LIMIT), LIMIT).await;
    assert_eq!(cluster.nodes[1].ask(&format!("KEYS {}", name(&key))).unwrap().trim(), name(&key));
    for store in [&asking, &late] {
        // It has asked for a lock as long as that, and of another server.
        let elsewhere = take_soon(store, &claim(&other, 4 * LIMIT), LIMIT).await;
        dlock_contract::Backend::release(store, &elsewhere).await.unwrap();
    }
    assert!(!matches!(attempt(&asking, &claim(&key, LIMIT)).await, Ok(dlock_contract::Attempt::Acquired(_))));
    let restarting = cluster.clone();
    blocking(move || restarting.nodes[1].restart().unwrap()).await;
    held_back(&asking, &key).await;
    // This one finds it out by another slot, before it has ever asked for this one.
    held_back(&late, &of_target).await;
    blocking(move || step.finish()).await;
    for store in [&asking, &late] {
        held_back(store, &key).await;
        goes_on(store, &other).await;
    }
    let next = take_soon(&bold, &claim(&key, LIMIT), LIMIT).await;
    assert!(dlock_testkit::holds::token(&next) > dlock_testkit::holds::token(&hold));
}

/// No server lists it among those that have slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_comes_to_a_server_without_slots_is_served_on_its_way() {
    let cluster = cluster(3, 1).await;
    let key = key_at(&cluster, 0);
    let redis = open(&with(&with(&cluster.url(), "restart_guard=off"), "failover_guard=off")).await;
    let (moving, moved) = (cluster.clone(), key.clone());
    let step = blocking(move || {
        becomes_a_primary_without_slots(&moving, 3);
        let mut step = Move::of(&moving, &moved);
        step.to = 3;
        step.begin();
        step
    })
    .await;
    // The old server does not have it, so the new one grants it.
    let hold = take_soon(&redis, &claim(&key, LIMIT), LIMIT).await;
    assert_eq!(cluster.nodes[step.to].ask(&format!("KEYS {}", name(&key))).unwrap().trim(), name(&key));
    assert!(matches!(confirm(&redis, &hold).await, Standing::Renewed(_)));
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    let is_gone = async || cluster.nodes[step.to].ask(&format!("KEYS {}", name(&key))).unwrap().trim().is_empty();
    wait_until("the lock is free", is_gone).await.unwrap();
}

/// Turns a replica into a primary, as a node is that has just joined.
fn becomes_a_primary_without_slots(cluster: &RedisCluster, node: usize) {
    let first = cluster.nodes[0].ask("CLUSTER NODES").unwrap();
    let myself = first.lines().find(|line| line.contains("myself")).unwrap();
    let (ip_and_port, bus) = myself.split(' ').nth(1).unwrap().split_once('@').unwrap();
    let (port, bus) = (ip_and_port.rsplit_once(':').unwrap().1, bus.split(',').next().unwrap());
    cluster.nodes[node].ask("CLUSTER RESET SOFT").unwrap();
    cluster.nodes[node].ask(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")).unwrap();
    let knows_four_primaries = |node: &dlock_testkit::servers::Instance| {
        node.ask("CLUSTER NODES").is_ok_and(|nodes| nodes.lines().filter(|line| line.contains("master")).count() == 4)
    };
    block_until("all nodes know the new primary", || cluster.nodes.iter().all(knows_four_primaries)).unwrap();
}
