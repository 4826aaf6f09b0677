//! A slot on its way to a server that forgets what it has granted already.

use dlock_testkit::holds::claim;

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
