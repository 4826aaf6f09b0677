//! A server that may evict locks: refused at opening, by `ready`, and when it is met later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use dlock::backends::redis::{Literal, Redis};
use dlock::{
    Clock, ErrorKind, Event, Label, Observer, Operation, Registry, RequestOutcome, StoreEvent, StoreLabel, Wait,
};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;

use super::accounts::{account, server};
use super::cluster::cluster;
use super::{SECOND, blocking, open, refusal, with};
use crate::rights;

/// The error of opening the store with this URL, or the findings of its readiness probe, which must not refuse it.
async fn opened(url: &str) -> Result<Vec<String>, ErrorKind> {
    match Redis::connect(url, &Clock::system()).await {
        Ok(redis) => Ok(redis.ready().await.expect("a store that was opened is ready").findings),
        Err(error) => Err(error.kind().clone()),
    }
}

/// Hosted servers block `CONFIG`, and their default policy evicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicting_server_whose_config_is_blocked_is_refused() {
    let options = ["--rename-command", "CONFIG", "", "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"];
    let server = blocking(move || Instance::start(servers::Redis::with(&options)).unwrap()).await;
    let url = server.url();
    assert!(matches!(opened(&url).await, Err(ErrorKind::ConfigInvalid { .. })));
    let literal = Literal::connect(&with(&url, "keys=literal"), &Clock::system()).await.unwrap_err();
    assert!(is_wrong_server(literal.kind()), "{literal}");
    let bold = opened(&with(&url, "eviction=allow")).await.unwrap();
    assert!(bold.iter().any(|finding| finding.contains("allkeys-random")), "{bold:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_of_info_and_config_shows_that_locks_may_be_evicted() {
    let server = server().await;
    server.ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    let url = |name, without| account(&server, name, &format!("{} {without}", rights::lines(1..=5)));
    for (name, without) in [("one", "-config|get"), ("two", "-info")] {
        assert!(matches!(opened(&url(name, without)).await, Err(ErrorKind::ConfigInvalid { .. })), "{without}");
    }
    let blind = opened(&url("blind", "-info -config|get")).await.unwrap();
    assert!(blind.iter().any(|finding| finding.contains("neither INFO nor CONFIG GET")), "{blind:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_evict_locks_grants_none_until_it_says_that_it_does_not() {
    let server = server().await;
    let redis = open(&account(&server, "whole", &rights::lines(1..=5))).await;
    let hold = take(&redis, &claim("held", 60 * SECOND)).await;
    server.ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    // It is looked at on a new connection.
    server.ask("CLIENT KILL TYPE normal").unwrap();
    refused_as(&redis, is_wrong_server).await;
    // It was set right, and may not say so.
    server.ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    server.ask("ACL SETUSER whole -config|get -info").unwrap();
    for _ in 0..2 {
        let error = refusal(&redis, &claim("k", SECOND)).await;
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    // Nor on a new connection, which goes by what was seen on the last one.
    server.ask("CLIENT KILL TYPE normal").unwrap();
    refused_as(&redis, |kind| *kind == ErrorKind::PermissionDenied).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    // One of the two is enough.
    server.ask("ACL SETUSER whole +info").unwrap();
    take(&redis, &claim("k", SECOND)).await;
}

/// Counts the attempts that were refused.
struct Refused(Arc<AtomicU32>);

impl Observer for Refused {
    fn on_event(&self, _: &Label, _: &Event) {}

    fn on_store_event(&self, _: &StoreLabel, event: &StoreEvent) {
        if let StoreEvent::Requested { operation: Operation::Acquire, outcome: RequestOutcome::Failed(kind), .. } =
            event
            && is_wrong_server(kind)
        {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_goes_on_once_the_server_does_not_evict() {
    let server = server().await;
    let (registry, refused) = (Registry::new(), Arc::new(AtomicU32::new(0)));
    registry.connect("redis", &server.url()).await.unwrap();
    registry.observe(Refused(refused.clone()));
    server.ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    // It is looked at on a new connection.
    server.ask("CLIENT KILL TYPE normal").unwrap();
    let other = registry.lock("other").backend("redis").wait(Wait::None);
    let is_refused = async || match other.clone().acquire().await {
        Err(error) => is_wrong_server(error.kind()),
        Ok(guard) => guard.release().await.is_err(),
    };
    wait_until("the policy is seen", is_refused).await.unwrap();
    let before = refused.load(Ordering::Relaxed);
    let election = registry.elect("boss").backend("redis");
    let leads = tokio::spawn(election.lead(async |leader| leader.term().get()));
    let campaigned = async || leads.is_finished() || refused.load(Ordering::Relaxed) > before;
    wait_until("the candidate is refused", campaigned).await.unwrap();
    server.ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    leads.await.unwrap().unwrap();
}

fn is_wrong_server(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConfigInvalid { .. })
}

/// Asks until it is refused so: the present connection may be at its end.
async fn refused_as(redis: &Redis, is_so: impl Fn(&ErrorKind) -> bool) {
    let end = Instant::now() + 30 * SECOND;
    loop {
        // A lock that is left is in the way of the next attempt, and does not end by itself.
        let refused = claim("k", 60 * SECOND);
        let error = refusal(redis, &refused).await;
        // Some of it may have been found out after the lock was taken.
        let undone = async || redis.abandon(&refused).await.is_ok();
        wait_until("it is undone", undone).await.unwrap();
        if is_so(error.kind()) {
            return;
        }
        assert!(error.is_retryable() && Instant::now() < end, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_cluster_that_may_evict_locks_grants_none_until_it_says_that_it_does_not() {
    let cluster = cluster(1, 0).await;
    let server = &cluster.nodes[0];
    server.ask(&format!("ACL SETUSER app reset on >pw {}", rights::of_cluster(1..=5))).unwrap();
    let redis = open(&cluster.url().replace("://", "://app:pw@")).await;
    take(&redis, &claim("held", 60 * SECOND)).await;
    server.ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    // It is looked at after the end of a connection.
    server.ask("CLIENT KILL TYPE normal").unwrap();
    refused_as(&redis, is_wrong_server).await;
    for right in ["-config|get", "+config|get"] {
        server.ask(&format!("ACL SETUSER app {right}")).unwrap();
        let error = refusal(&redis, &claim("k", SECOND)).await;
        assert!(is_wrong_server(error.kind()), "{right}: {error}");
    }
    server.ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    take(&redis, &claim("k", SECOND)).await;
}
