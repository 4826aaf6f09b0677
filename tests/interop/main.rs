//! Real clients of other languages beside dlock, with the same lock names on the same servers.
//!
//! `cargo xtask interop` installs Go, Java and Maven, builds those clients and runs this target. `cargo test` and
//! `cargo xtask test` leave it out (`test = false` in `Cargo.toml`).

mod consul;
mod etcd;
mod foreign;
mod queues;
mod redsync;
mod shedlock;
mod zookeeper;

use std::time::{Duration, Instant};

use dlock::{Key, Registry, Wait};
use dlock_contract::Owner;
use dlock_testkit::servers::{Instance, Redis, redlock_url, shared};
use redis::Commands;

use foreign::Seen;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// Another process of these tests.
#[test]
fn child_main() {
    if dlock_testkit::child::role().is_some() {
        queues::wait_for_ever();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redsync_and_ours_take_turns_on_one_server_and_lose_no_count() {
    let url = shared().redis().unwrap();
    let ours = Ours { store: format!("{url}?keys=literal"), tasks: 8, pause: 10 * MS };
    let (ours, theirs) = count_together(&[url], ours, 8).await;
    // Each task of redsync's had the lock far more often than once a second.
    assert!(theirs.holds > 64 && theirs.failures <= 8 && ours > 64, "ours {ours}, {theirs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redsync_and_ours_lose_no_count_over_the_same_masters() {
    let recipe = |_| Redis { aof_always: true, ..Redis::default() };
    let nodes = Instance::start_all((0..5).map(recipe)).unwrap();
    let urls: Vec<_> = nodes.iter().map(Instance::url).collect();
    let store = format!("{}?max_ttl=10m&keys=literal", redlock_url(&nodes));
    let (ours, theirs) = count_together(&urls, Ours { store, tasks: 4, pause: 20 * MS }, 6).await;
    // There is no wait queue over several masters, so chance decides how often each side gets the lock.
    assert!(ours > 0 && theirs.holds > theirs.failures, "ours {ours}, {theirs:?}");
}

/// The callers of this process.
struct Ours {
    /// The URL of their store.
    store: String,
    tasks: usize,
    /// How long each of them does without the lock between two holds.
    pause: Duration,
}

/// Tasks of dlock and of redsync take the same lock for some seconds. Each hold counts up one number at the first of
/// the servers, by a read and a write, so two holders at a time would lose a count. Returns the holds of each side.
async fn count_together(urls: &[String], ours: Ours, seconds: u32) -> (u64, Seen) {
    let id = Owner::fresh().unwrap().to_hex();
    let counter = format!("count:{id}");
    let registry = Registry::new();
    registry.connect("store", &ours.store).await.unwrap();
    registry.set_default("store").unwrap();
    let theirs = redsync::start(&urls.join(","), &format!("stock:{id}"), &counter, seconds);
    let end = Instant::now() + SECOND * seconds;
    let tasks: Vec<_> = (0..ours.tasks)
        .map(|_| {
            let (registry, id, counter, mut raw) = (registry.clone(), id.clone(), counter.clone(), connect(&urls[0]));
            tokio::spawn(async move {
                let mut holds = 0;
                while Instant::now() < end {
                    let lock = registry.lock(Key::text("stock:").value(&id)).ttl(LONG).wait(Wait::UpTo(LONG));
                    let guard = lock.acquire().await.unwrap();
                    let before: Option<u64> = raw.get(&counter).unwrap();
                    tokio::time::sleep(MS).await;
                    let () = raw.set(&counter, before.unwrap_or(0) + 1).unwrap();
                    guard.release().await.unwrap();
                    holds += 1;
                    tokio::time::sleep(ours.pause).await;
                }
                holds
            })
        })
        .collect();
    let mut holds = 0;
    for task in tasks {
        holds += task.await.unwrap();
    }
    let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
    println!("ours {holds}, {theirs:?}");
    assert_eq!(connect(&urls[0]).get::<_, u64>(&counter).unwrap(), holds + theirs.holds);
    (holds, theirs)
}

fn connect(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}
