//! A server that comes back with less than it had.

use std::time::{Duration, Instant};

use dlock::backends::redis::Redis;
use dlock::{Backoff, Clock, Error, ErrorKind, Key, Registry, Retry, Wait};
use dlock_contract::{Attempt, Backend, Exchange, Released, Standing};
use dlock_testkit::holds::{claim, stand, take, token};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;

use super::{SECOND, attempt, blocking, handed, open, refusal, standing_soon, take_soon, with};

async fn restarted(server: Instance) -> Instance {
    blocking(move || {
        server.restart().unwrap();
        server
    })
    .await
}

/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(60);
/// No test is that slow.
const HOUR: Duration = Duration::from_secs(3600);
/// A machine that is slower than the first of these guards may be in time for the next one.
const GUARDS: [Duration; 3] = [Duration::from_secs(4), Duration::from_secs(12), Duration::from_secs(36)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_saw_a_server_forget_grants_nothing_until_the_longest_ttl_is_over() {
    for ttl in GUARDS {
        if is_held_back(ttl).await.is_some() {
            return;
        }
    }
    panic!("each guard had ended before a request: nothing is proven");
}

/// The refusal by a guard that lasts at least for this time. `None`: it has ended before.
async fn refused(redis: &Redis, key: &str, guard: Duration, since: Instant) -> Option<Error> {
    match attempt(redis, &claim(key, SECOND)).await {
        Err(error) => Some(error),
        Ok(answer) => {
            assert!(since.elapsed() >= guard, "{answer:?}");
            None
        }
    }
}

/// `None` if a guard of this length had ended before the test came to ask.
async fn is_held_back(ttl: Duration) -> Option<()> {
    let server = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let (redis, holder) = (open(&server.url()).await, open(&server.url()).await);
    take(&redis, &claim("mine", ttl)).await;
    let held = take(&holder, &claim("held", ttl)).await;
    let since = Instant::now();
    let server = restarted(server).await;
    let error = refused(&redis, "held", ttl, since).await?;
    assert_eq!(*error.kind(), ErrorKind::Outage);
    assert!(error.is_retryable() && error.to_string().contains("restart_guard"), "{error}");
    // A probe hears what a caller hears.
    let Err(probed) = redis.ready().await else {
        assert!(since.elapsed() >= ttl, "the guard has not ended");
        return None;
    };
    assert!(probed.is_retryable() && probed.to_string().contains("restart_guard"), "{probed}");
    // The holder is told at once.
    assert_eq!(standing_soon(&holder, &held, LIMIT).await, Standing::Lost);
    let next = take_soon(&redis, &claim("held", SECOND), LIMIT).await;
    assert!(since.elapsed() > ttl && token(&next) > token(&held), "{:?}", since.elapsed());

    redis.ready().await.unwrap();

    // For whom it is new, a young server is like any other, unless a time was asked for.
    let since = Instant::now();
    let server = restarted(server).await;
    take(&open(&server.url()).await, &claim("new", SECOND)).await;
    let strict = open(&with(&server.url(), &format!("restart_guard={}s", ttl.as_secs()))).await;
    refused(&strict, "strict", ttl, since).await?;
    take_soon(&strict, &claim("strict", SECOND), LIMIT).await;
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_syncs_every_write_forgets_nothing() {
    let server =
        blocking(|| Instance::start(servers::Redis { aof_always: true, ..servers::Redis::default() }).unwrap()).await;
    // A quick restart may look like a failover: a server tells its age in whole seconds.
    let redis = open(&with(&server.url(), "restart_guard=1h&failover_guard=off")).await;
    let held = take(&redis, &claim("held", HOUR)).await;
    let server = restarted(server).await;
    assert!(matches!(standing_soon(&redis, &held, LIMIT).await, Standing::Renewed(_)));
    assert!(matches!(attempt(&redis, &claim("held", SECOND)).await.unwrap(), Attempt::Contended(_)));
    let other = take(&redis, &claim("other", SECOND)).await;
    assert!(token(&other) > token(&held));
    assert!(matches!(standing_soon(&redis, &held, LIMIT).await, Standing::Renewed(_)));
    assert_eq!(redis.release(&held).await.unwrap(), Released::Released);
    drop(server);
}

/// Short ttls alone make a short guard, which is over when a longer one is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_is_as_long_as_the_ttl_of_the_request_at_hand() {
    let server = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let (redis, holder) = (open(&server.url()).await, open(&server.url()).await);
    take(&redis, &claim("mine", SECOND)).await;
    take(&holder, &claim("held", HOUR)).await;
    let server = restarted(server).await;
    take_soon(&redis, &claim("mine", SECOND), LIMIT).await;
    // Its holder has not asked since, and may believe in it.
    let error = refusal(&redis, &claim("held", HOUR)).await;
    assert!(error.to_string().contains("restart_guard") && error.told_after() > Some(HOUR / 2), "{error}");
    drop(server);
}

/// Its caller has asked for nothing itself: the release before has asked for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_a_release_has_asked_for_counts_too() {
    let server = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let (redis, other) = (open(&server.url()).await, open(&server.url()).await);
    // It has waited: pushes reach it, and a release can ask.
    let former = take(&other, &claim("k", SECOND)).await;
    let waiting = claim("k", SECOND);
    let mut wake = stand(&redis, &waiting).await;
    other.release(&former).await.unwrap();
    let held = handed(&redis, &waiting, &mut wake).await;
    let until = Clock::system().now().after(60 * SECOND);
    let (_, asked) = redis.release_to(&held, &claim("k", 600 * SECOND), until).await.unwrap();
    assert!(matches!(asked, Some(Attempt::Acquired(_))), "{asked:?}");
    let server = restarted(server).await;
    // Longer than any other ttl.
    tokio::time::sleep(3 * SECOND).await;
    let error = refusal(&redis, &claim("k", SECOND)).await;
    assert!(error.to_string().contains("restart_guard"), "{error}");
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_long_enough_waits_for_the_end_of_the_guard() {
    let server = blocking(|| Instance::start(servers::Redis::default()).unwrap()).await;
    let registry = Registry::new();
    registry.connect("redis", &server.url()).await.unwrap();
    registry.set_default("redis").unwrap();
    let lock = |wait| registry.lock(Key::text("k")).ttl(10 * SECOND).wait(wait);
    lock(Wait::None).acquire().await.unwrap().release().await.unwrap();
    let server = restarted(server).await;
    // Longer than that nobody wants to wait, so nobody has to.
    let error = loop {
        let error = lock(Wait::UpTo(SECOND / 10)).acquire().await.unwrap_err();
        if error.to_string().contains("restart_guard") {
            break error;
        }
        assert!(error.is_retryable(), "{error}");
    };
    assert!(*error.kind() == ErrorKind::Outage && error.retry_after().is_some_and(|after| after > SECOND), "{error}");
    let end = Instant::now() + error.retry_after().unwrap() / 2;
    let none = Retry { times: 0, backoff: Some(Backoff::new(SECOND, SECOND)) };
    let mut patient = Box::pin(lock(Wait::UpTo(60 * SECOND)).retry(none).acquire());
    // It asks, so its neighbours hear of contention; and stands aside when it was refused.
    assert!(futures::poll!(patient.as_mut()).is_pending());
    let patient = tokio::spawn(patient);
    let is_aside =
        async || lock(Wait::None).acquire().await.is_err_and(|error| matches!(error.kind(), ErrorKind::Outage));
    wait_until("it stands aside", is_aside).await.unwrap();
    // Nobody has the lock while that caller waits, and its neighbours must not hear of contention.
    while Instant::now() < end {
        for wait in [Wait::None, Wait::UpTo(SECOND)] {
            match lock(wait).acquire().await {
                Ok(guard) => guard.release().await.unwrap(),
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Outage, "{error}"),
            }
        }
    }
    let guard = patient.await.unwrap().unwrap_or_else(|error| panic!("{error}"));
    guard.release().await.unwrap();
    registry.shutdown(SECOND).await;
    drop(server);
}
