//! A cluster in which one server has forgotten its locks, and one with replicas that are waited for.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Error, ErrorKind, Mode};
use dlock_contract::{Attempt, Backend, Claim, Released, Signal, Standing};
use dlock_testkit::holds::{claim, claim_in, confirm, stand, take, token, until};
use dlock_testkit::servers::RedisCluster;
use tokio::time::Instant;

use super::cluster::{cluster, key_at};
use super::{MS, SECOND, attempt, blocking, name, open, refusal, standing_soon, take_soon, with};

const LIMIT: Duration = Duration::from_secs(30);
/// The longest ttl that is asked for: so long nothing may be granted.
const LONGEST: Duration = Duration::from_secs(8);

/// Asks until the guard has spoken; nothing may be granted before.
pub(crate) async fn held_back(redis: &Redis, key: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        match attempt(redis, &claim(key, SECOND)).await {
            Ok(answer) => panic!("{answer:?} from a server that has forgotten"),
            Err(error) if error.to_string().contains("restart_guard") => {
                assert_eq!(*error.kind(), ErrorKind::Outage);
                assert!(error.is_retryable(), "{error}");
                return;
            }
            // It is not there again yet.
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(10 * MS).await;
    }
}

/// The slots of others go on, as soon as the cluster does.
pub(crate) async fn goes_on(redis: &Redis, key: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        match attempt(redis, &claim(key, SECOND)).await {
            Ok(Attempt::Acquired(hold)) => {
                redis.release(&hold).await.unwrap();
                return;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(!error.to_string().contains("restart_guard"), "{error}");
                assert!(Instant::now() < end, "{error}");
            }
        }
        tokio::time::sleep(10 * MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restarted_server_keeps_only_its_own_slots_back() {
    let cluster = cluster(3, 0).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let redis = open(&cluster.url()).await;
    let bold = open(&with(&with(&cluster.url(), "restart_guard=off"), "failover_guard=off")).await;
    // By the ttl of a lock elsewhere; of the server that forgets it has taken none.
    let elsewhere = take(&redis, &claim(&other, LONGEST)).await;
    let held = take(&bold, &claim(&mine, LIMIT)).await;
    let since = Instant::now();
    let restarting = cluster.clone();
    blocking(move || restarting.nodes[0].restart().unwrap()).await;
    held_back(&redis, &mine).await;
    assert_eq!(standing_soon(&bold, &held, LIMIT).await, Standing::Lost);
    assert!(matches!(standing_soon(&redis, &elsewhere, LIMIT).await, Standing::Renewed(_)));
    redis.release(&elsewhere).await.unwrap();
    goes_on(&redis, &other).await;

    // A client that has switched the guard off is let in.
    let early = take_soon(&bold, &claim(&mine, LIMIT), LIMIT).await;
    assert!(token(&early) > token(&held));
    held_back(&redis, &mine).await;
    bold.release(&early).await.unwrap();
    let late = take_soon(&redis, &claim(&mine, SECOND), LIMIT).await;
    assert!(since.elapsed() >= LONGEST && token(&late) > token(&early), "{:?}", since.elapsed());
    redis.release(&late).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failover_keeps_only_the_slots_of_the_failed_back() {
    let cluster = cluster(3, 1).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let redis = open(&cluster.url()).await;
    let bold = open(&with(&cluster.url(), "failover_guard=off")).await;
    let elsewhere = take(&redis, &claim(&other, LONGEST)).await;
    let dead = cluster.clone();
    let since = Instant::now();
    blocking(move || dead.nodes[0].kill9().unwrap()).await;
    held_back(&redis, &mine).await;
    assert!(matches!(standing_soon(&redis, &elsewhere, LIMIT).await, Standing::Renewed(_)));
    redis.release(&elsewhere).await.unwrap();
    goes_on(&redis, &other).await;
    let early = take_soon(&bold, &claim(&mine, LIMIT), LIMIT).await;
    bold.release(&early).await.unwrap();
    let late = take_soon(&redis, &claim(&mine, SECOND), LIMIT).await;
    assert!(since.elapsed() >= LONGEST && token(&late) > token(&early), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_is_moved_waits_for_nothing() {
    let cluster = cluster(3, 0).await;
    let redis = open(&cluster.url()).await;
    let key = key_at(&cluster, 0);
    let held = take(&redis, &claim(&key, LIMIT)).await;
    redis.release(&held).await.unwrap();
    let (moving, moved) = (cluster.clone(), key.clone());
    blocking(move || {
        let step = super::cluster::Move::of(&moving, &moved);
        step.begin();
        step.finish();
    })
    .await;
    goes_on(&redis, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_grant_waits_for_the_replicas_of_its_slot() {
    let cluster: Arc<RedisCluster> = cluster(3, 1).await;
    let (mine, other) = (key_at(&cluster, 0), key_at(&cluster, 1));
    let redis = open(&with(&cluster.url(), "wait_replicas=1")).await;
    let hold = take_soon(&redis, &claim(&mine, 10 * SECOND), LIMIT).await;
    assert_eq!(cluster.nodes[3].ask(&format!("KEYS {}", name(&mine))).unwrap().trim(), name(&mine));
    redis.release(&hold).await.unwrap();

    // The other servers have no replicas.
    let error = refused(&redis, &claim(&other, 10 * SECOND)).await;
    assert!(error.is_retryable() && error.to_string().contains("0 of 1 replicas"), "{error}");
    let left = cluster.nodes[1].ask(&format!("EXISTS {}", name(&other))).unwrap();
    assert_eq!(left, "0", "nothing is left of it");

    cluster.nodes[3].pause().unwrap();
    let error = refused(&redis, &claim(&mine, 10 * SECOND)).await;
    assert!(*error.kind() == ErrorKind::Outage && error.to_string().contains("0 of 1 replicas"), "{error}");
    cluster.nodes[3].resume().unwrap();
    let again = take_soon(&redis, &claim(&mine, 10 * SECOND), LIMIT).await;
    redis.release(&again).await.unwrap();

    shares_wait_for_the_replicas(&cluster, &redis, &mine).await;
    who_is_handed_the_lock_waits_for_the_replicas(&cluster, &redis, &mine).await;

    // Without it nobody waits for any.
    let usual = open(&cluster.url()).await;
    take(&usual, &claim(&other, SECOND)).await;
}

/// The names under a lock's that the replica has.
fn replicated(cluster: &RedisCluster, key: &str) -> usize {
    cluster.nodes[3].ask(&format!("KEYS {}*", name(key))).unwrap().lines().filter(|line| !line.is_empty()).count()
}

/// As [`refusal`], and undone as the engine does after every failure.
async fn refused(redis: &Redis, claim: &Arc<Claim>) -> Error {
    let error = refusal(redis, claim).await;
    redis.abandon(claim).await.unwrap();
    error
}

async fn shares_wait_for_the_replicas(cluster: &RedisCluster, redis: &Redis, key: &str) {
    let two = Mode::Permits(NonZeroU32::new(2).unwrap());
    for mode in [Mode::Read, Mode::Write, two] {
        let hold = take(redis, &claim_in(key, mode, LIMIT)).await;
        assert!(replicated(cluster, key) >= 3, "the lock, its shares, and what is known of each: {mode:?}");
        assert!(matches!(confirm(redis, &hold).await, Standing::Renewed(_)));
        assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);

        cluster.nodes[3].pause().unwrap();
        let error = refused(redis, &claim_in(key, mode, LIMIT)).await;
        cluster.nodes[3].resume().unwrap();
        assert!(error.is_retryable() && error.to_string().contains("0 of 1 replicas"), "{mode:?}: {error}");
        assert_eq!(cluster.nodes[0].ask(&format!("KEYS {}*", name(key))).unwrap(), "", "{mode:?}");
    }
}

async fn who_is_handed_the_lock_waits_for_the_replicas(cluster: &RedisCluster, redis: &Redis, key: &str) {
    let waiter = open(&with(&cluster.url(), "wait_replicas=1")).await;
    let hold = take_soon(redis, &claim(key, 10 * SECOND), LIMIT).await;
    let next = claim(key, 10 * SECOND);
    let mut wake = stand(&waiter, &next).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    let news = tokio::time::timeout(LIMIT, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(news, Signal::Ask), "nobody has waited for the replicas of that grant: {news:?}");

    cluster.nodes[3].pause().unwrap();
    let error = waiter.try_acquire(&next, until()).await.unwrap_err();
    cluster.nodes[3].resume().unwrap();
    assert!(error.is_retryable() && error.to_string().contains("0 of 1 replicas"), "{error}");
    waiter.abandon(&next).await.unwrap();

    let hold = take_soon(redis, &claim(key, 10 * SECOND), LIMIT).await;
    let mut wake = stand(&waiter, &next).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    tokio::time::timeout(LIMIT, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    let Attempt::Acquired(handed) = waiter.try_acquire(&next, until()).await.unwrap() else { panic!() };
    assert!(token(&handed) > token(&hold) && replicated(cluster, key) == 1);
    assert_eq!(waiter.release(&handed).await.unwrap(), Released::Released);
}
