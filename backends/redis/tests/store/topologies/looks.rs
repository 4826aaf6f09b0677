//! The warnings at the opening of a store whose server would forget locks.

use dlock_contract::Backend;
use dlock_testkit::Log;
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::{Instance, Redis, RedisCluster};
use tracing::Level;
use tracing::instrument::WithSubscriber;

use super::{SECOND, blocking, open, with};
use crate::names::RIGHTS;

/// The warnings about persistence while a store is opened and used.
async fn said(url: &str) -> Vec<String> {
    said_of("append-only", url).await
}

/// The warnings with this text.
async fn said_of(text: &str, url: &str) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let used = async {
        let redis = open(url).await;
        for _ in 0..3 {
            let hold = take(&redis, &claim("k", SECOND)).await;
            redis.release(&hold).await.unwrap();
            redis.ready().await.unwrap();
        }
    };
    used.with_subscriber(subscriber).await;
    log.text().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

async fn server(recipe: Redis) -> Instance {
    blocking(|| Instance::start(recipe).unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_an_append_only_file_is_warned_about_once() {
    let server = server(Redis::default()).await;
    let said_by_default = said(&server.url()).await;
    let [line] = &said_by_default[..] else { panic!("{said_by_default:?}") };
    let name = format!("127.0.0.1:{}", server.port());
    for part in ["WARN", &name, "a restart forgets locks", "restart_guard", "appendfsync always"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let unguarded = said(&with(&server.url(), "restart_guard=off")).await;
    assert!(unguarded.len() == 1 && unguarded[0].contains("that is still held"), "{unguarded:?}");

    // `INFO` says it too. If the account may ask neither way, the store says that, and guesses nothing.
    // Another database each time, because an equal warning is written once a minute.
    for (rights, lines, database) in [("-config", 1, 1), ("-config -info", 0, 2)] {
        server.ask(&format!("ACL SETUSER blind reset on >pw {RIGHTS} +@all {rights}")).unwrap();
        assert_eq!(said(&format!("redis://blind:pw@{name}/{database}")).await.len(), lines, "{rights}");
    }
}

/// A probe or a page asks whether the store is ready every few seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_warned_about_once() {
    let server = server(Redis::default()).await;
    server.ask(&format!("ACL SETUSER mute reset on >pw {RIGHTS} +@all -publish")).unwrap();
    let name = format!("127.0.0.1:{}", server.port());
    let told = said_of("waiters are not told of releases", &format!("redis://mute:pw@{name}/")).await;
    assert!(matches!(&told[..], [line] if line.contains(&format!("host=\"{name}"))), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_an_append_only_file_is_not_warned_about() {
    for options in [&["--appendonly", "yes"][..], &["--appendonly", "yes", "--appendfsync", "everysec"]] {
        let server = server(Redis::with(options)).await;
        assert!(said(&server.url()).await.is_empty(), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_warning_of_a_cluster_names_the_servers_without_an_append_only_file() {
    let cluster = blocking(|| RedisCluster::start(3, 0, false, &[]).unwrap()).await;
    let mut forgetful = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port()));
    let kept = forgetful.next().unwrap();
    cluster.nodes[0].ask("CONFIG SET appendonly yes").unwrap();
    let guarded = said(&cluster.url()).await;
    let [line] = &guarded[..] else { panic!("{guarded:?}") };
    assert!(forgetful.all(|name| line.contains(&name)) && !line.contains(&format!("{kept}: ")), "{line}");
    assert!(line.contains("restart_guard") && !line.contains("that is still held"), "{line}");
    let unguarded = said(&with(&cluster.url(), "restart_guard=off")).await;
    assert!(unguarded.len() == 1 && unguarded[0].contains("that is still held"), "{unguarded:?}");
}
