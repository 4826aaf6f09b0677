//! Lost answers of a cluster's servers: the state of a lock is unknown then, and not lost.

use std::sync::Arc;

use dlock::backends::redis::Redis;
use dlock::{Key, Registry};
use dlock_contract::{Backend, Hold, Released};
use dlock_testkit::Mode;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{Make, RedisCluster};

use super::accounts::calls;
use super::cluster::{cluster, key_at};
use super::{MS, SECOND, blocking, name, open, take_soon};

const TTL: std::time::Duration = std::time::Duration::from_secs(30);

/// Takes a lock; the servers know the scripts by then.
async fn taken(redis: &Redis, key: &str) -> Hold {
    let first = take(redis, &claim(key, TTL)).await;
    assert_eq!(redis.release(&first).await.unwrap(), Released::Released);
    take(redis, &claim(key, TTL)).await
}

/// Lets the server's next answer be lost, and everything pass from then on.
async fn answered_in_vain(cluster: &Arc<RedisCluster>, key: &str) {
    let (cluster, name) = (cluster.clone(), name(key));
    blocking(move || {
        let end = std::time::Instant::now() + TTL;
        while cluster.nodes[0].ask(&format!("EXISTS {name}")).unwrap() != "0" {
            assert!(std::time::Instant::now() < end, "the server did nothing");
            std::thread::sleep(10 * MS);
        }
        cluster.proxies[0].set(Mode::Pass);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_whose_answer_is_lost_is_no_loss() {
    for make in [Make::Redis, Make::Redis8] {
        a_lost_answer_of(make).await;
    }
}

/// By script, or by the server's own command.
async fn a_lost_answer_of(make: Make) {
    let cluster = Arc::new(blocking(move || RedisCluster::start_of(&[make; 3], true).unwrap()).await);
    let key = key_at(&cluster, 0);
    let redis = open(&cluster.url()).await;
    let hold = taken(&redis, &key).await;
    cluster.proxies[0].set(Mode::DropReplies);
    let (answer, ()) = tokio::join!(redis.release(&hold), answered_in_vain(&cluster, &key));
    match answer {
        Ok(released) => assert_eq!(released, Released::Released),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }

    // As a caller sees it.
    let registry = Registry::new();
    registry.connect("redis", &cluster.url()).await.unwrap();
    registry.set_default("redis").unwrap();
    registry.configure(|defaults| defaults.namespace = "test".into()).unwrap();
    let guard = registry.lock(Key::new().value(key.as_str())).ttl(TTL).acquire().await.unwrap();
    cluster.proxies[0].set(Mode::DropReplies);
    let (released, ()) = tokio::join!(guard.release(), answered_in_vain(&cluster, &key));
    released.unwrap();
    registry.shutdown(SECOND).await;
    assert_eq!(calls(&cluster.nodes[0], "delex").0 > 0, matches!(make, Make::Redis8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_by_a_server_that_stands_still_is_no_loss() {
    let cluster = cluster(3, 0).await;
    let key = key_at(&cluster, 0);
    let redis = open(&cluster.url()).await;
    let hold = taken(&redis, &key).await;
    cluster.nodes[0].pause().unwrap();
    // Longer than the client waits, and less than the others need to miss it.
    let (answer, ()) = tokio::join!(redis.release(&hold), async {
        tokio::time::sleep(1700 * MS).await;
        cluster.nodes[0].resume().unwrap();
    });
    match answer {
        Ok(released) => assert_eq!(released, Released::Released),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    let next = take_soon(&redis, &claim(&key, TTL), TTL).await;
    assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
}
