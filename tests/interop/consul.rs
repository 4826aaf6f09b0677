//! Consul's own library for Go: its `Lock` and its `Semaphore`. The real `consul lock` runs in the tests of the store's crate.

use std::process::Command;
use std::time::{Duration, Instant};

use dlock::{ErrorKind, Key, Mode, Registry, Wait};
use dlock_contract::Owner;
use dlock_testkit::servers::{self, Recipe, shared};

use crate::foreign::{Foreign, Seen, built};
use crate::{LONG, SECOND};

const SECONDS: u32 = 6;
/// Callers on each side.
const TASKS: usize = 4;

/// The keys of one test.
#[derive(Clone)]
struct Names {
    id: String,
    /// The rest of the name of the lock.
    end: &'static str,
    /// Counted up by each holder of an exclusive lock, by a read and a write: two holders at a time would lose a count.
    counter: String,
    /// How many are inside at the moment, changed by compare and set.
    inside: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_go_and_ours_lose_no_count() {
    let names = names();
    let (ours, theirs) = together(&names, 1).await;
    assert_eq!(number(&names.counter).0, ours + theirs.holds);
    assert!(theirs.failures == 0 && ours > 4 && theirs.holds > 4, "ours {ours}, {theirs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_of_go_and_our_permits_are_never_more_than_there_are() {
    let (ours, theirs) = together(&names(), 2).await;
    assert!(theirs.failures == 0 && ours > 4 && theirs.holds > 4, "ours {ours}, {theirs:?}");
}

/// Each of theirs, and this process, has one waiter, and Consul gives a free lock to the first that asks. A waiter of ours that was
/// late each time would have almost none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_of_ours_has_its_share_beside_two_four_and_eight_of_go() {
    for others in [2, 4, 8] {
        let (ours, theirs) = without_pauses(others).await;
        let fair = (ours + theirs.holds) as f64 / f64::from(others + 1);
        let share = ours as f64 / fair;
        println!("beside {others}: {share:.2} of the fair share ({ours} and {theirs:?})");
        assert!(fair > 40.0, "only {fair} holds are fair: nothing is proven");
        assert!(theirs.failures == 0 && share > 0.7, "{share:.2} of the fair share beside {others}");
    }
}

/// The tool starts a process and a session for each hold, so it waits less than a library does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_of_ours_has_its_share_beside_two_four_and_eight_of_consul_lock() {
    const SECONDS: u32 = 15;
    for others in [2_u32, 4, 8] {
        let (names, registry) = (names(), ours().await);
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("consul/tool.sh"), "tool"]).arg(servers::Consul::program().unwrap());
        command.arg(shared().consul().unwrap().replace("consul://", "http://"));
        command.args([&format!("jobs/{}", names.id), &others.to_string(), &SECONDS.to_string()]);
        let theirs = Foreign::start(command);
        let names = Names { end: "/.lock", ..names };
        let ours = hold_without_pauses(&registry, &names, Instant::now() + SECOND * SECONDS).await;
        let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
        let share = ours as f64 * f64::from(others + 1) / (ours + theirs.holds) as f64;
        println!("beside {others}: {share:.2} of the fair share ({ours} and {theirs:?})");
        assert!(theirs.holds > u64::from(others) && share > 0.7, "{share:.2} of the fair share beside {others}");
    }
}

/// Holds of this process, of which one task always waits, and of so many callers of Go.
async fn without_pauses(others: u32) -> (u64, Seen) {
    const SECONDS: u32 = 15;
    let (names, registry) = (names(), ours().await);
    let theirs = go(&names, 1, &["-tasks", &others.to_string(), "-for", &format!("{SECONDS}s"), "-pause", "1ms"]);
    let holds = hold_without_pauses(&registry, &names, Instant::now() + SECOND * SECONDS).await;
    (holds, tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap())
}

async fn hold_without_pauses(registry: &Registry, names: &Names, end: Instant) -> u64 {
    let tasks = (0..2).map(|_| {
        let (registry, names) = (registry.clone(), names.clone());
        tokio::spawn(async move {
            let mut holds = 0;
            while Instant::now() < end {
                let guard = lock(&registry, &names, Mode::Exclusive).acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
                holds += 1;
            }
            holds
        })
    });
    futures::future::join_all(tasks).await.into_iter().map(Result::unwrap).sum()
}

/// Each side refuses a semaphore that has another number of permits, also when nobody holds one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_of_go_with_another_limit_is_a_conflict_and_stays_as_it_is() {
    let (names, registry) = (names(), ours().await);
    let permits = |limit| lock(&registry, &names, Mode::permits(limit));
    let theirs = tokio::task::spawn_blocking({
        let names = names.clone();
        move || go(&names, 3, &["-tasks", "4", "-for", "2s"]).seen()
    });
    let theirs = theirs.await.unwrap();
    assert!(theirs.failures == 0 && theirs.holds > 0, "{theirs:?}");
    // Theirs is empty now.
    let error = permits(2).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict, "{error}");
    let guard = permits(3).acquire().await.unwrap();
    let refused = tokio::task::spawn_blocking({
        let names = names.clone();
        move || go(&names, 2, &["-tasks", "1", "-for", "1s"]).seen()
    });
    let refused = refused.await.unwrap();
    assert!(refused.holds == 0 && refused.failures > 0, "{refused:?}");
    guard.release().await.unwrap();
}

/// Theirs, with the same lock as ours and these words.
fn go(names: &Names, limit: u32, words: &[&str]) -> Foreign {
    let mut command = Command::new(built("consul-api").root().join("consul-api"));
    command.args(["-address", shared().consul().unwrap().trim_start_matches("consul://")]);
    command.args(["-name", &format!("jobs/{}", names.id), "-limit", &limit.to_string()]).args(words);
    Foreign::start(command)
}

async fn ours() -> Registry {
    let registry = Registry::new();
    let url = shared().consul().unwrap();
    registry.connect("consul", &format!("{url}?keys=literal&lock_delay=0s")).await.unwrap();
    registry.set_default("consul").unwrap();
    registry
}

fn lock(registry: &Registry, names: &Names, mode: Mode) -> dlock::Lock {
    registry.lock(Key::text("jobs/").value(&names.id).and_text(names.end)).ttl(LONG).mode(mode).wait(Wait::UpTo(LONG))
}

fn names() -> Names {
    let id = Owner::fresh().unwrap().to_hex();
    Names { counter: format!("count-{id}"), inside: format!("inside-{id}"), id, end: "" }
}

/// Both sides take one lock, or one of some permits, for some seconds. Fails if one of ours sees too many inside.
async fn together(names: &Names, limit: u32) -> (u64, Seen) {
    let registry = ours().await;
    let (tasks, time) = (TASKS.to_string(), format!("{SECONDS}s"));
    let words = ["-counter", &names.counter, "-inside", &names.inside, "-tasks", &tasks, "-for", &time];
    let theirs = go(names, limit, &words);
    let end = Instant::now() + SECOND * SECONDS;
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(take(registry.clone(), names.clone(), limit, end))).collect();
    let mut holds = 0;
    for task in tasks {
        holds += task.await.unwrap();
    }
    let theirs = tokio::task::spawn_blocking(|| theirs.seen()).await.unwrap();
    println!("ours {holds}, {theirs:?}");
    (holds, theirs)
}

async fn take(registry: Registry, names: Names, limit: u32, end: Instant) -> u64 {
    let mode = if limit == 1 { Mode::Exclusive } else { Mode::permits(limit) };
    let mut holds = 0;
    while Instant::now() < end {
        let guard = lock(&registry, &names, mode).acquire().await.unwrap();
        let inside = add(&names.inside, 1);
        assert!(inside <= i64::from(limit), "{inside} are inside");
        if limit == 1 {
            let count = number(&names.counter).0 + 1;
            ask(&format!("PUT /v1/kv/{} {count}", names.counter));
        }
        add(&names.inside, -1);
        guard.release().await.unwrap();
        holds += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    holds
}

/// Adds by compare and set, and gives the new number.
fn add(key: &str, by: i64) -> i64 {
    loop {
        let (before, index) = number(key);
        let next = i64::try_from(before).unwrap() + by;
        if ask(&format!("PUT /v1/kv/{key}?cas={index} {next}")).trim() == "true" {
            return next;
        }
    }
}

/// A number, and the index of its last change; zero of both if there is none.
fn number(key: &str) -> (u64, u64) {
    let found = ask(&format!("GET /v1/kv/{key}?consistent"));
    if found.is_empty() {
        return (0, 0);
    }
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let index = found[0]["ModifyIndex"].as_u64().unwrap();
    // A later value beside this index: then the compare fails.
    (ask(&format!("GET /v1/kv/{key}?raw&consistent")).parse().unwrap(), index)
}

fn ask(request: &str) -> String {
    let host = shared().consul().unwrap();
    let recipe = servers::Consul::default();
    match recipe.ask(host.trim_start_matches("consul://").parse().unwrap(), request) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        answer => answer.unwrap(),
    }
}
