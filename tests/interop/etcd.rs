//! Real clients of etcd's: Go's `concurrency.Mutex`, and jetcd, which uses the server's own lock service.

use std::process::Command;
use std::time::{Duration, Instant};

use dlock::backends::etcd::client::Client;
use dlock::{Key, Registry, Wait};
use dlock_contract::Owner;
use dlock_testkit::servers::shared;

use crate::foreign::{Foreign, Seen, built};
use crate::{LONG, MS, SECOND};

const SECONDS: u32 = 5;
/// Theirs. Each has a place in the wait queue of its own, and our process has one.
const SESSIONS: &str = "4";

/// Where a lock is.
struct Names {
    /// The options of our URL.
    options: &'static str,
    /// Their prefix for our key `jobs/<id>`.
    theirs: fn(&str) -> String,
}

const LITERAL: Names = Names { options: "?keys=literal", theirs: |id| format!("jobs/{id}") };
/// Spelled out, as a user of these tools must: backends/etcd/README.md has this form.
const OWN: Names = Names { options: "", theirs: |id| format!("dl1:default:jobs%2F<{id}>") };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_and_ours_take_turns_and_lose_no_count() {
    for names in [LITERAL, OWN] {
        count_together(&names, |endpoint, prefix, counter| {
            let mut command = Command::new(built("etcd-mutex").root().join("etcd-mutex"));
            command.args(["-endpoint", endpoint, "-prefix", prefix, "-counter", counter, "-sessions", SESSIONS]);
            command.args(["-for", &format!("{SECONDS}s")]);
            command
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetcd_and_ours_take_turns_and_lose_no_count() {
    for names in [LITERAL, OWN] {
        count_together(&names, |endpoint, name, counter| {
            let tree = built("jetcd");
            let path = format!("{}:{}/*", tree.root().join("classes").display(), tree.root().join("lib").display());
            let mut command = Command::new("java");
            command.args(["-cp", &path, "Jetcd", endpoint, name, counter, SESSIONS, &SECONDS.to_string()]);
            command
        })
        .await;
    }
}

/// Both sides take one lock for some seconds. Each hold counts up one number, by a read and a write, so two holders at a
/// time would lose a count.
async fn count_together(names: &Names, theirs: impl FnOnce(&str, &str, &str) -> Command) {
    let endpoint = shared().etcd().unwrap();
    let id = Owner::fresh().unwrap().to_hex();
    let counter = format!("count-{id}");
    let registry = Registry::new();
    let url = format!("{}{}", endpoint.replace("http://", "etcd://"), names.options);
    registry.connect("etcd", &url).await.unwrap();
    registry.set_default("etcd").unwrap();
    let theirs = Foreign::start(theirs(&endpoint, &(names.theirs)(&id), &counter));
    let end = Instant::now() + SECOND * SECONDS;
    let tasks: Vec<_> =
        (0..4).map(|_| tokio::spawn(take(registry.clone(), id.clone(), counter.clone(), end))).collect();
    let mut holds = 0;
    for task in tasks {
        holds += task.await.unwrap();
    }
    let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
    println!("ours {holds}, {theirs:?}");
    let Seen { holds: others, failures } = theirs;
    let counted = number(&mut Client::connect([endpoint], None).await.unwrap(), &counter).await;
    assert_eq!(counted, holds + others);
    assert!(failures == 0 && holds > 10 && others > 10, "one side hardly ever had the lock");
}

async fn take(registry: Registry, id: String, counter: String, end: Instant) -> u64 {
    let mut raw = Client::connect([shared().etcd().unwrap()], None).await.unwrap();
    let mut holds = 0;
    while Instant::now() < end {
        let lock = registry.lock(Key::text("jobs/").value(&id)).ttl(LONG).wait(Wait::UpTo(LONG));
        let guard = lock.acquire().await.unwrap();
        let before = number(&mut raw, &counter).await;
        tokio::time::sleep(MS).await;
        raw.put(counter.as_str(), (before + 1).to_string(), None).await.unwrap();
        guard.release().await.unwrap();
        holds += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    holds
}

async fn number(raw: &mut Client, counter: &str) -> u64 {
    let found = raw.get(counter, None).await.unwrap();
    found.kvs().first().map_or(0, |count| count.value_str().unwrap().parse().unwrap())
}
