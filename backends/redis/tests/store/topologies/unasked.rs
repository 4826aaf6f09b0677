//! A server of a cluster that is down while a store is opened.

use std::sync::Arc;

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::claim;
use dlock_testkit::servers::RedisCluster;
use dlock_testkit::wait_until;

use super::cluster::{LIMIT, key_at};
use super::{SECOND, attempt, blocking, open, take_soon, with};

async fn cluster() -> Arc<RedisCluster> {
    let options = ["--cluster-require-full-coverage", "no"];
    Arc::new(blocking(move || RedisCluster::start(3, 0, false, &options)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_opens_and_is_ready_while_one_server_of_the_cluster_is_down() {
    let cluster = cluster().await;
    let keys = [0, 1, 2].map(|node| key_at(&cluster, node));
    for down in 0..3 {
        let failing = cluster.clone();
        blocking(move || failing.nodes[down].kill9().unwrap()).await;
        let redis = open(&with(&cluster.url(), "restart_guard=off")).await;
        let hold = take_soon(&redis, &claim(&keys[(down + 1) % 3], LIMIT), LIMIT).await;
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
        let place = format!("127.0.0.1:{}", cluster.nodes[down].port());
        for _ in 0..4 {
            let health = redis.ready().await.unwrap();
            assert!(health.findings.iter().any(|finding| finding.contains(&place)), "{:?}", health.findings);
        }
        let returning = cluster.clone();
        blocking(move || {
            returning.nodes[down].restart().unwrap();
            returning.wait_until_whole().unwrap();
        })
        .await;
        let back = take_soon(&redis, &claim(&keys[down], LIMIT), LIMIT).await;
        assert_eq!(redis.release(&back).await.unwrap(), Released::Released);
        let is_whole = async || {
            redis.ready().await.is_ok_and(|health| !health.findings.iter().any(|finding| finding.contains("answer")))
        };
        wait_until("all servers answer", is_whole).await.unwrap();
    }
}

/// Without guards nobody looks at a server before it grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_could_not_be_asked_at_the_opening_is_asked_before_it_grants() {
    let cluster = cluster().await;
    let (mine, other) = (key_at(&cluster, 2), key_at(&cluster, 0));
    let failing = cluster.clone();
    blocking(move || failing.nodes[2].kill9().unwrap()).await;
    let redis = open(&with(&with(&cluster.url(), "restart_guard=off"), "failover_guard=off")).await;
    let returning = cluster.clone();
    blocking(move || {
        returning.nodes[2].restart().unwrap();
        returning.nodes[2].ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
        returning.wait_until_whole().unwrap();
    })
    .await;
    let is_refused = async || match attempt(&redis, &claim(&mine, SECOND)).await {
        Err(error) if error.is_retryable() => false,
        Err(error) => matches!(error.kind(), ErrorKind::ConfigInvalid { .. }),
        Ok(answer) => panic!("{answer:?}"),
    };
    wait_until("the server is refused", is_refused).await.unwrap();
    assert!(matches!(redis.ready().await.unwrap_err().kind(), ErrorKind::ConfigInvalid { .. }));
    let elsewhere = take_soon(&redis, &claim(&other, LIMIT), LIMIT).await;
    assert_eq!(redis.release(&elsewhere).await.unwrap(), Released::Released);
    cluster.nodes[2].ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    take_soon(&redis, &claim(&mine, LIMIT), LIMIT).await;
}
