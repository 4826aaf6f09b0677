//! The parts that a URL must have, and the options that the backend refuses by its profile.

use std::time::Duration;

use dlock::backends::redlock::Redlock;
use dlock::{Clock, ErrorKind, Mode, OncePer, Registry};
use dlock_contract::Backend;
use dlock_testkit::child::Child;
use dlock_testkit::holds::claim;
use dlock_testkit::servers::{Instance, Redis};
use dlock_testkit::{Proxy, text_of, wait_until};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, SECOND, take};

const FROM_ENV: &str = "from the environment";

async fn refusal(url: &str) -> ErrorKind {
    let error = Redlock::connect(url, &Clock::system()).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    error.kind().clone()
}

fn config_invalid() -> ErrorKind {
    ErrorKind::ConfigInvalid { field: "url".into() }
}

#[tokio::test]
async fn two_names_of_one_server_are_refused() {
    let cluster = Cluster::start();
    let [a, b, c] = [0, 1, 2].map(|node| cluster.nodes[node].addr());
    let other_name = format!("localhost:{}", a.port());
    assert_eq!(refusal(&format!("redlock://{a},{b},{other_name}")).await, config_invalid());
    let proxy = Proxy::start(a).unwrap();
    assert_eq!(refusal(&format!("redlock://{a},{b},{}", proxy.addr())).await, config_invalid());
    assert_eq!(refusal(&format!("redlock://{a},{b},{a}")).await, config_invalid());
    assert_eq!(refusal(&format!("redlock://{a},{b}")).await, config_invalid());
    assert_eq!(refusal(&format!("redlock://{a},{b},{c},{other_name}")).await, config_invalid());
    Redlock::connect(&format!("redlock://{a},{b},{c}"), &Clock::system()).await.unwrap();
}

#[tokio::test]
async fn two_names_of_one_server_are_found_when_the_server_comes_up_later() {
    let cluster = Cluster::start();
    let [a, b, c, d] = [0, 1, 2, 3].map(|node| cluster.nodes[node].addr());
    let double = Proxy::start(a).unwrap();
    double.set(dlock_testkit::Mode::Refuse);
    let url = format!("redlock://{a},{b},{c},{d},{}", double.addr());
    let redlock = Redlock::connect(&url, &Clock::system()).await.unwrap();
    double.set(dlock_testkit::Mode::Pass);
    // The three others are a majority, and the double is none of it.
    cluster.kill([2]);
    let hold = take(&redlock, &claim("k", SECOND * 60)).await;
    redlock.release(&hold).await.unwrap();
    cluster.kill([3]);
    let error = redlock.try_acquire(&claim("k", SECOND * 60), dlock_contract::Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "two servers are no majority of five: {error}");
}

#[tokio::test]
async fn a_fault_of_one_node_is_reported_at_the_start() {
    let cluster = Cluster::start();
    let [a, b, c] = [0, 1, 2].map(|node| cluster.nodes[node].addr());
    let url = format!("redlock://{a},{b},{c}");
    cluster.nodes[2].ask("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    assert_eq!(refusal(&url).await, ErrorKind::ConfigInvalid { field: "maxmemory-policy".into() });
    Redlock::connect(&format!("{url}?eviction=allow"), &Clock::system()).await.unwrap();
    cluster.nodes[2].ask("CONFIG SET maxmemory-policy noeviction").unwrap();
    cluster.nodes[1].ask(&format!("REPLICAOF 127.0.0.1 {}", a.port())).unwrap();
    assert_eq!(refusal(&url).await, ErrorKind::NotPrimary);
    cluster.nodes[1].ask("REPLICAOF NO ONE").unwrap();
    cluster.nodes[0].ask("CONFIG SET requirepass xCanaryBirdx").unwrap();
    let error = Redlock::connect(&url, &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied);
    let error = Redlock::connect(&url.replace("://", "://:xCanaryBirdx2@"), &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied);
    assert!(!text_of(&error).contains("xCanaryBirdx"));
}

#[tokio::test]
async fn one_account_opens_all_nodes() {
    let secured =
        || Redis { aof_always: true, extra: vec!["--requirepass".into(), "p@ss,w".into()], ..Redis::default() };
    let nodes = Instance::start_all([(); 3].map(|()| secured())).unwrap();
    let hosts: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    let url = format!("redlock://default:p%40ss%2Cw@{}/3", hosts.join(","));
    let redlock = Redlock::connect(&url, &Clock::system()).await.unwrap();
    let hold = take(&redlock, &claim("k", SECOND * 30)).await;
    redlock.release(&hold).await.unwrap();
    assert_eq!(format!("{redlock:?}"), format!("Redlock([{}/3])", hosts.join("/3, ")));
}

#[tokio::test]
async fn an_option_that_several_servers_cannot_agree_on_is_refused_before_any_request() {
    let cluster = Cluster::forgetful("?max_ttl=1m");
    let registry = cluster.registry().await;
    // They have no vote in the first minute, so a request would be an outage.
    let lock = || registry.lock("k").ttl(SECOND);
    let asked = [
        lock().fair(true),
        lock().mode(Mode::Read),
        lock().mode(Mode::Write),
        lock().mode(Mode::Permits(3.try_into().unwrap())),
        lock().min_hold(Duration::from_millis(10)),
        lock().once_per(OncePer::new(SECOND)),
    ];
    for lock in asked {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
    for ttl in [Duration::from_millis(999), Duration::from_millis(60_001), Duration::from_micros(1_000_500)] {
        let error = registry.lock("k").ttl(ttl).try_acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TtlOutOfRange { .. }), "{error}");
    }
    assert_eq!(*lock().try_acquire().await.unwrap_err().kind(), ErrorKind::Outage);
}

#[tokio::test]
async fn a_store_that_fails_or_is_dropped_leaves_no_task() {
    let cluster = Cluster::start();
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for _ in 0..3 {
        Redlock::connect("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", &Clock::system()).await.unwrap_err();
        let redlock = cluster.open().await;
        let hold = take(&redlock, &claim("k", SECOND * 30)).await;
        redlock.release(&hold).await.unwrap();
    }
    wait_until("no task is left", async || alive() == before).await.unwrap();
}

#[tokio::test]
async fn the_environment_can_name_the_nodes_of_redlock() {
    let cluster = Cluster::start();
    let mut child = Child::spawn(FROM_ENV, &[("DLOCK_URL_MAIN", &cluster.url())]).unwrap();
    assert_eq!(child.wait_line("held by ", SECOND * 60).unwrap(), "main");
}

/// The other process of the test above.
pub(crate) fn play(role: &str) {
    assert_eq!(role, FROM_ENV);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let registry = Registry::new();
        let names = registry.connect_from_env().await.unwrap();
        let guard = registry.lock("k").backend("main").acquire().await.unwrap();
        println!("held by {}", names.join(" "));
        guard.release().await.unwrap();
    });
}
