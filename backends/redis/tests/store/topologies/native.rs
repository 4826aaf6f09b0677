//! The servers' own compare-and-delete in a cluster.

use std::sync::Arc;

use dlock_contract::{Attempt, Backend, Released};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{Make, RedisCluster};

use super::accounts::calls;
use super::cluster::{a_release_in_mid_move_is_a_release, key_at, slots_move_under_held_locks, until};
use super::{SECOND, blocking, handed, open};

const TTL: std::time::Duration = std::time::Duration::from_secs(30);

async fn cluster_of(makes: [Make; 3]) -> Arc<RedisCluster> {
    Arc::new(blocking(move || RedisCluster::start_of(&makes, false).unwrap()).await)
}

/// How many times each server has run a command.
fn run(cluster: &RedisCluster, command: &str) -> [u64; 3] {
    [0, 1, 2].map(|node| calls(&cluster.nodes[node], command).0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_whose_servers_can_compare_and_delete_releases_without_a_script() {
    for (make, command) in [(Make::Valkey, "delifeq"), (Make::Redis8, "delex")] {
        let cluster = cluster_of([make; 3]).await;
        let redis = open(&cluster.url()).await;
        for node in 0..3 {
            let key = key_at(&cluster, node);
            for _ in 0..=node {
                let hold = take(&redis, &claim(&key, TTL)).await;
                assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
            }
        }
        assert_eq!(run(&cluster, command), [1, 2, 3], "{command}");

        // A foreign lock is left alone, and a waiter is handed the lock.
        let key = key_at(&cluster, 1);
        let hold = take(&redis, &claim(&key, TTL)).await;
        let next = claim(&key, TTL);
        let Attempt::Contended(mut wake) = redis.try_acquire(&next, until()).await.unwrap() else { panic!() };
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(redis.release(&hold).await.unwrap(), Released::NotOwner);
        let next = handed(&redis, &next, &mut wake).await;
        assert_eq!(redis.release(&next).await.unwrap(), Released::Released);

        slots_move_under_held_locks(&cluster).await;
        a_release_in_mid_move_is_a_release(&cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_server_without_compare_and_delete_makes_all_releases_scripts() {
    let cluster = cluster_of([Make::Redis8, Make::Redis8, Make::Redis]).await;
    let redis = open(&cluster.url()).await;
    for node in 0..3 {
        let hold = take(&redis, &claim(&key_at(&cluster, node), TTL)).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    }
    assert_eq!(run(&cluster, "delex"), [0; 3]);
}

/// As a server would that took the place of another one, and is older.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_refuses_compare_and_delete_is_asked_by_script() {
    let cluster = cluster_of([Make::Redis8; 3]).await;
    let redis = open(&cluster.url()).await;
    cluster.nodes[0].ask("ACL SETUSER default -delex").unwrap();
    let keys = [0, 1].map(|node| key_at(&cluster, node));
    for key in [&keys[1], &keys[0], &keys[1], &keys[0]] {
        let hold = take(&redis, &claim(key, 60 * SECOND)).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(redis.release(&hold).await.unwrap(), Released::NotOwner);
    }
    // The release before the refusal, and the one that found nothing.
    assert_eq!(run(&cluster, "delex"), [0, 2, 0]);
}
