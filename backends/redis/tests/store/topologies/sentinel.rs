//! Sentinel: which sentinels to believe, and the cost of a failover.

use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Key, Registry, Wait};
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{claim, take, token};
use dlock_testkit::servers::{Instance, RedisSentinels, Sentinel};
use dlock_testkit::wait_until;

use super::promoted::order;
use super::{MS, SECOND, blocking, name, open, refusal, standing_soon, take_soon, with};
use crate::names;

/// Short, so that the tests are.
pub(crate) const DOWN_AFTER_MS: u32 = 500;
/// A failover takes about two seconds; a busy machine takes its time.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn set(replicas: usize) -> RedisSentinels {
    blocking(move || RedisSentinels::start(replicas, DOWN_AFTER_MS, false, &[])).await.unwrap()
}

/// Kills the primary, and returns when another server is one.
pub(crate) async fn fail_over(set: RedisSentinels) -> RedisSentinels {
    blocking(move || {
        let old = set.primary().unwrap();
        let port = old.port();
        old.kill9().unwrap();
        set.wait_for_failover(port).unwrap();
        set
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_replica_has_survives_the_primary() {
    let set = set(1).await;
    let redis = open(&with(&set.url(), "wait_replicas=1&failover_guard=off")).await;
    let hold = take_soon(&redis, &claim("held", 2 * LIMIT), LIMIT).await;
    let set = fail_over(set).await;
    // The only replica has acknowledged it.
    let standing = standing_soon(&redis, &hold, LIMIT).await;
    assert!(matches!(standing, Standing::Renewed(_)), "{standing:?}");
    let other = open(&with(&set.url(), "failover_guard=off")).await;
    let contended = super::attempt(&other, &claim("held", SECOND)).await.unwrap();
    assert!(matches!(contended, dlock_contract::Attempt::Contended(_)), "{contended:?}");
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    let next = take_soon(&other, &claim("held", SECOND), LIMIT).await;
    assert!(token(&next) > token(&hold), "the token rises over a failover");
    // The next grants come from the new primary.
    let primary = set.primary().unwrap();
    assert!(primary.ask(&format!("EXISTS {}", name("held"))).unwrap() == "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_no_replica_has_is_lost_and_the_next_token_is_higher() {
    let set = set(1).await;
    let redis = open(&with(&set.url(), "failover_guard=off")).await;
    take(&redis, &claim("before", LIMIT)).await;
    // The replica hears nothing any more, as one with a broken line; the sentinels do.
    let set = blocking(move || {
        set.servers[0].ask("ACL SETUSER default -psync -sync").unwrap();
        set.servers[0].ask("CLIENT KILL TYPE replica").unwrap();
        set
    })
    .await;
    let hold = take(&redis, &claim("forgotten", LIMIT)).await;
    let set = fail_over(set).await;
    let other = open(&with(&set.url(), "failover_guard=off")).await;
    // At once, and not by the end of its ttl.
    let next = take_soon(&other, &claim("forgotten", LIMIT), LIMIT / 3).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(standing_soon(&redis, &hold, LIMIT).await, Standing::Lost);
    assert_eq!(redis.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(standing_soon(&other, &next, LIMIT).await, Standing::Renewed(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_nothing_is_granted_until_the_longest_ttl_is_over() {
    let set = set(1).await;
    let redis = open(&set.url()).await;
    let ttl = 4 * SECOND;
    let hold = take(&redis, &claim("a", ttl)).await;
    let before = tokio::time::Instant::now();
    let set = fail_over(set).await;
    // Earlier holds go on.
    let _ = standing_soon(&redis, &hold, LIMIT).await;
    let error = refusal(&redis, &claim("b", SECOND)).await;
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable() && error.to_string().contains("failover_guard"), "{error}");
    take_soon(&redis, &claim("b", SECOND), LIMIT).await;
    assert!(before.elapsed() > ttl, "{:?}", before.elapsed());
    // With `off` a caller gets what the new primary knows, at once.
    let careless = open(&with(&set.url(), "failover_guard=off")).await;
    take(&careless, &claim("c", SECOND)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_only_stood_still_is_left_when_another_one_is_chosen() {
    let set = set(1).await;
    let redis = open(&with(&set.url(), "failover_guard=off&restart_guard=off")).await;
    take(&redis, &claim("warm", SECOND)).await;
    let set = blocking(move || {
        set.servers[0].pause().unwrap();
        set.wait_for_failover(set.servers[0].port()).unwrap();
        set.servers[0].resume().unwrap();
        set
    })
    .await;
    let hold = take_soon(&redis, &claim("after", LIMIT), LIMIT).await;
    let asked = format!("EXISTS {}", name("after"));
    assert_eq!(set.servers[1].ask(&asked).unwrap(), "1", "the new primary has granted it");
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiter_waits_through_a_failover_that_somebody_ordered() {
    let set = set(1).await;
    let url = with(&set.url(), "failover_guard=off");
    let registry = [Registry::new(), Registry::new()];
    for registry in &registry {
        registry.connect("redis", &url).await.unwrap();
        registry.set_default("redis").unwrap();
    }
    let lock = |n: usize| registry[n].lock(Key::text("waited")).ttl(10 * SECOND).wait(Wait::UpTo(LIMIT));
    let guard = lock(0).acquire().await.unwrap();
    let before = guard.fence().unwrap().get();
    let backoff = dlock::Backoff::new(20 * MS, 200 * MS);
    let waiter = lock(1).retry(dlock::Retry { times: 100, backoff: Some(backoff) });
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    let queue = format!("{}:q", names::of(guard.key()));
    let queued = async || set.primary().unwrap().ask(&format!("ZCARD {queue}")).unwrap() == "1";
    wait_until("the waiter is in the queue", queued).await.unwrap();
    let set = blocking(move || {
        order(&set);
        set
    })
    .await;
    let kept = guard.release().await;
    let next = waiter.await.unwrap();
    assert!(next.unwrap_or_else(|error| panic!("{error}")).fence().unwrap().get() > before);
    let _ = (kept, set);
    for registry in registry {
        registry.shutdown(SECOND).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn less_than_a_majority_of_the_sentinels_names_no_primary() {
    let set = set(0).await;
    let redis = open(&set.url()).await;
    let url = set.url();
    let error = Redis::connect(&url.replace("/main", "/other"), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    let set = blocking(move || {
        set.sentinels[0].kill9().unwrap();
        set
    })
    .await;
    open(&url).await;
    let set = blocking(move || {
        set.sentinels[1].kill9().unwrap();
        set
    })
    .await;
    let error = Redis::connect(&url, &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.to_string().contains("majority"), "{error}");
    // A connected client needs no sentinel.
    take(&redis, &claim("k", SECOND)).await;
    drop(set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_of_another_group_is_refused_by_its_address() {
    let (set, other, alien) = blocking(|| {
        let set = RedisSentinels::start(0, DOWN_AFTER_MS, false, &[]).unwrap();
        let other = Instance::start(dlock_testkit::servers::Redis::default()).unwrap();
        let extra = Vec::new();
        let alien = Instance::start(Sentinel { primary: other.port(), down_after_ms: DOWN_AFTER_MS, extra }).unwrap();
        (set, other, alien)
    })
    .await;
    let [a, b, c] = [0, 1, 2].map(|number: usize| set.sentinels[number].addr());
    let mixed = format!("redis-sentinel://{a},{b},{}/main", alien.addr());
    let error = Redis::connect(&mixed, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    assert!(error.to_string().contains(&alien.addr().to_string()), "{error}");
    // One that has lost the name takes no part, and is named.
    let right = open(&format!("redis-sentinel://{a},{b},{c}/main")).await;
    let set = blocking(move || {
        set.sentinels[2].ask("SENTINEL REMOVE main").unwrap();
        set
    })
    .await;
    let findings = right.ready().await.unwrap().findings.join("; ");
    assert!(findings.contains(&format!("{c} watches no primary")), "{findings}");
    // One of the same group that tells something else has missed a failover: it is no reason to refuse the others.
    let set = blocking(move || {
        set.sentinels[2].ask(&format!("SENTINEL MONITOR main 127.0.0.1 {} 2", set.servers[0].port())).unwrap();
        set
    })
    .await;
    let again = async || right.ready().await.unwrap().findings.iter().all(|finding| !finding.contains("sentinel"));
    wait_until("the sentinels agree again", again).await.unwrap();
    drop((set, other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_credentials_of_their_own() {
    let (_server, sentinel) = blocking(|| {
        let server = Instance::start(dlock_testkit::servers::Redis::with(&["--requirepass", "server/pass"])).unwrap();
        let lines = [
            "sentinel auth-pass main server/pass",
            "user default off",
            "user ask on >sent:pass -@all +sentinel|get-master-addr-by-name +subscribe resetchannels &+switch-master",
        ];
        let extra = lines.map(str::to_owned).to_vec();
        let sentinel = Instance::start(Sentinel { primary: server.port(), down_after_ms: 5000, extra }).unwrap();
        (server, sentinel)
    })
    .await;
    let url = |servers: &str, sentinels: &str| {
        format!("redis-sentinel://{servers}127.0.0.1:{}/main/2{sentinels}", sentinel.port())
    };
    let right = url(":server%2Fpass@", "?sentinel_user=ask&sentinel_password=sent%3Apass");
    let redis = open(&right).await;
    take(&redis, &claim("k", SECOND)).await;
    assert_eq!(redis.host(), Some(format!("main by 127.0.0.1:{}/2", sentinel.port())));
    for wrong in [
        url(":server%2Fpass@", ""),
        url(":server%2Fpass@", "?sentinel_user=ask&sentinel_password=wrong"),
        url(":wrong@", "?sentinel_user=ask&sentinel_password=sent%3Apass"),
        url("", "?sentinel_user=ask&sentinel_password=sent%3Apass"),
    ] {
        let error = Redis::connect(&wrong, &Clock::system()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.is_retryable() && !format!("{error:?}").contains("pass@"));
    }
}
