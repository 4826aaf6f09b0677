//! A cluster in which a node fails, or stands still.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Released, Standing};
use dlock_testkit::holds::{claim, take, token};
use dlock_testkit::servers::RedisCluster;
use dlock_testkit::{Mode, wait_until};
use tokio::time::Instant;

use super::cluster::{cluster, key_at, until};
use super::{MS, SECOND, blocking, connections, handed, name, open, standing_soon, take_soon, with};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_fails_stops_only_its_own_slots() {
    let cluster = cluster(3, 1).await;
    let redis = open(&with(&cluster.url(), "failover_guard=off")).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let held = take(&redis, &claim(&mine, LIMIT)).await;
    let elsewhere = take(&redis, &claim(&other, LIMIT)).await;
    let dead = cluster.clone();
    blocking(move || {
        dead.wait_for_replica(3, 0).unwrap();
        dead.nodes[0].kill9().unwrap();
    })
    .await;
    assert!(matches!(standing_soon(&redis, &elsewhere, LIMIT).await, Standing::Renewed(_)));
    // The replica had it.
    let standing = standing_soon(&redis, &held, LIMIT).await;
    assert!(matches!(standing, Standing::Renewed(_)), "{standing:?}");
    let have_heard = async || matches!(cluster.owner_of(&name(&mine)), Ok(3));
    wait_until("all nodes have heard of it", have_heard).await.unwrap();
    // The new one may refuse requests (CLUSTERDOWN) for a moment more.
    let frees = async || redis.release(&held).await.is_ok_and(|released| released == Released::Released);
    wait_until("the new server frees the lock", frees).await.unwrap();
    let next = take_soon(&redis, &claim(&mine, LIMIT), LIMIT).await;
    assert!(token(&next) > token(&held));

    // Pushes come from the new node.
    let waiter = open(&cluster.url()).await;
    let waiting = claim(&mine, LIMIT);
    let Attempt::Contended(mut wake) = waiter.try_acquire(&waiting, until()).await.unwrap() else { panic!() };
    redis.release(&next).await.unwrap();
    assert!(token(&handed(&waiter, &waiting, &mut wake).await) > token(&next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_stands_still_is_left_when_its_replica_takes_over() {
    let cluster = cluster(3, 1).await;
    let redis = open(&with(&cluster.url(), "failover_guard=off")).await;
    let keys = keys_at(&cluster, 0);
    let other = key_at(&cluster, 1);
    let held = take(&redis, &claim(&keys[0], 2 * LIMIT)).await;
    stands_still(&cluster).await;
    let elsewhere = claim(&other, SECOND);
    take_soon(&redis, &elsewhere, LIMIT).await;
    // The replica had it, and serves now what the other one has served.
    let standing = standing_soon(&redis, &held, LIMIT).await;
    assert!(matches!(standing, Standing::Renewed(_)), "{standing:?}");
    let next = take_soon(&redis, &claim(&keys[1], LIMIT), LIMIT).await;
    for key in &keys {
        assert_eq!(cluster.nodes[3].ask(&format!("EXISTS {}", name(key))).unwrap(), "1");
    }
    assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
    cluster.nodes[0].resume().unwrap();
}

/// Two keys whose slots are at this node.
fn keys_at(cluster: &RedisCluster, node: usize) -> Vec<String> {
    let keys = (0..).map(|n| format!("key{n}"));
    keys.filter(|key| cluster.owner_of(&name(key)).unwrap() == node).take(2).collect()
}

/// Stops the first node when its replica has all that it has.
async fn stands_still(cluster: &Arc<RedisCluster>) {
    let still = cluster.clone();
    blocking(move || {
        still.wait_for_replica(3, 0).unwrap();
        still.nodes[0].pause().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_that_gives_up_early_also_finds_the_new_primary() {
    let cluster = cluster(3, 1).await;
    let redis = open(&with(&cluster.url(), "failover_guard=off")).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    // Each of its renewals is given up sooner than the client gives up a request.
    let short = take(&redis, &claim(&mine, 3 * SECOND)).await;
    let elsewhere = take(&redis, &claim(&other, LIMIT)).await;
    stands_still(&cluster).await;
    let end = Instant::now() + LIMIT;
    loop {
        // As long as the engine waits; to open all connections anew takes longer.
        let answer = tokio::time::timeout(SECOND, async { redis.renew(&[&short]).await.remove(0) }).await;
        if let Ok(Ok(standing)) = answer {
            // Its lease was over long before.
            break assert_eq!(standing, Standing::Lost);
        }
        assert!(Instant::now() < end, "{answer:?}");
        // The others answer all the while.
        assert!(matches!(standing_soon(&redis, &elsewhere, LIMIT).await, Standing::Renewed(_)));
        tokio::time::sleep(20 * MS).await;
    }
    cluster.nodes[0].resume().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_down_costs_the_others_no_connection() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Arc::new(blocking(move || RedisCluster::start(3, 0, false, &options)).await.unwrap());
    let redis = open(&cluster.url()).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let held = take(&redis, &claim(&mine, LIMIT)).await;
    let elsewhere = take(&redis, &claim(&other, LIMIT)).await;
    let before = connections(&cluster, 1);
    assert!(!before.is_empty());
    let down = cluster.clone();
    blocking(move || down.nodes[0].kill9().unwrap()).await;
    // As our thread does, which has little else to send; for longer than silence may last.
    let end = Instant::now() + 4 * SECOND;
    while Instant::now() < end {
        assert!(redis.renew(&[&held]).await.remove(0).is_err());
        tokio::time::sleep(100 * MS).await;
    }
    assert!(matches!(standing_soon(&redis, &elsewhere, LIMIT).await, Standing::Renewed(_)));
    assert!(before.is_subset(&connections(&cluster, 1)), "the client was replaced");
}

/// How often this node was asked who it is.
fn looks(cluster: &RedisCluster, node: usize) -> u64 {
    let stats = cluster.nodes[node].ask("INFO commandstats").unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|myid:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_down_costs_the_slots_of_others_no_check() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Arc::new(blocking(move || RedisCluster::start(3, 0, false, &options)).await.unwrap());
    let redis = Arc::new(open(&cluster.url()).await);
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let held = Arc::new(take(&*redis, &claim(&mine, LIMIT)).await);
    let down = cluster.clone();
    blocking(move || down.nodes[0].kill9().unwrap()).await;
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let (redis, held) = (redis.clone(), held.clone());
            tokio::spawn(async move {
                loop {
                    assert!(redis.renew(&[&*held]).await.remove(0).is_err());
                    tokio::time::sleep(20 * MS).await;
                }
            })
        })
        .collect();
    let first = take_soon(&redis, &claim(&other, SECOND), LIMIT).await;
    redis.release(&first).await.unwrap();
    let before = looks(&cluster, 1);
    for _ in 0..20 {
        // So that requests to the other one fail between any two.
        tokio::time::sleep(100 * MS).await;
        let hold = take_soon(&redis, &claim(&other, SECOND), LIMIT).await;
        redis.release(&hold).await.unwrap();
    }
    let looks = looks(&cluster, 1) - before;
    // A request to the other one that is late costs a look, too.
    assert!(looks <= 10, "{looks} looks for 20 grants");
    for task in asking {
        assert!(!task.is_finished());
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_is_opened_while_the_store_is_closed_is_not_kept() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 0, true, &[]).unwrap()).await);
    let redis = Arc::new(open(&cluster.url()).await);
    let hold = take(&*redis, &claim(&key_at(&cluster, 0), LIMIT)).await;
    let before = connections(&cluster, 0);
    assert!(!before.is_empty());
    // The next connection is opened slowly.
    cluster.proxies[0].set(Mode::Delay { to_server: Duration::ZERO, to_client: SECOND });
    cluster.proxies[0].cut();
    let asking = tokio::spawn({
        let redis = redis.clone();
        async move {
            loop {
                let _ = tokio::time::timeout(SECOND, redis.renew(&[&hold])).await;
            }
        }
    });
    let is_opening = async || !connections(&cluster, 0).is_subset(&before);
    wait_until("another connection is opened", is_opening).await.unwrap();
    // Nobody asks any more, and so nobody else has the connection.
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    redis.close().await;
    wait_until("the connection is gone", async || connections(&cluster, 0).is_empty()).await.unwrap();
}

/// A look asks all servers, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_opening_that_fails_after_the_close_leads_to_no_look_for_the_servers() {
    let cluster = Arc::new(blocking(|| RedisCluster::start(3, 0, true, &[]).unwrap()).await);
    let redis = open(&cluster.url()).await;
    let hold = take(&redis, &claim(&key_at(&cluster, 0), LIMIT)).await;
    let before = connections(&cluster, 0);
    // Longer than an opening may take.
    cluster.proxies[0].set(Mode::Delay { to_server: Duration::ZERO, to_client: 3 * SECOND });
    cluster.proxies[0].cut();
    let is_opening = async || {
        let _ = tokio::time::timeout(10 * MS, redis.renew(&[&hold])).await;
        !connections(&cluster, 0).is_subset(&before)
    };
    wait_until("another connection is opened", is_opening).await.unwrap();
    redis.close().await;
    for node in [0, 1, 2] {
        wait_until("the connections are gone", async || connections(&cluster, node).is_empty()).await.unwrap();
    }
    // The opening has failed now. A look would begin at once.
    for proxy in &cluster.proxies {
        proxy.set(Mode::Pass);
    }
    tokio::time::sleep(SECOND).await;
    let left: Vec<_> = (0..3).map(|node| connections(&cluster, node).len()).collect();
    assert_eq!(left, [0, 0, 0]);
}
