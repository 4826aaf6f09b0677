//! Several locks in one script, on a server of each test's own.

use std::sync::Arc;
use std::time::Duration;

use dlock::{ErrorKind, Key, LockAll, LockKey, Registry, Wait};
use dlock_contract::{Backend, Batch, Claim, Released, Together};
use dlock_testkit::holds::{claim, confirm, take, token};
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND};
use crate::names::{self, FENCE};

fn claims(ttl: Duration) -> [Arc<Claim>; 3] {
    ["a", "b", "c"].map(|key| claim(key, ttl))
}

async fn registry(bench: &Bench) -> Registry {
    let registry = Registry::new();
    registry.install("redis", bench.open().await).unwrap();
    registry.set_default("redis").unwrap();
    registry
}

/// The name in the server of one of the locks of `lock`.
fn name(n: u64) -> String {
    names::of_default(Key::text("all:").value(&n))
}

fn lock(registry: &Registry) -> LockAll {
    registry.lock_all((0..4).map(|n| Key::text("all:").value(&n))).ttl(LONG).wait(Wait::UpTo(LONG))
}

/// All names in the server.
fn names(bench: &Bench) -> Vec<String> {
    let mut names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut bench.raw()).unwrap();
    // A note of the store, which belongs to no lock.
    names.retain(|name| name != "dl1:forms");
    names.sort();
    names
}

/// How often this command has run, also inside of scripts.
fn calls(bench: &Bench, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut bench.raw()).unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_locks_are_taken_in_one_request_and_released_in_reverse() {
    let bench = Bench::own();
    let registry = registry(&bench).await;
    // The server learns the scripts.
    lock(&registry).acquire().await.unwrap().release().await.unwrap();
    let before = ["evalsha", "eval", "set"].map(|command| calls(&bench, command));
    let guards = lock(&registry).acquire().await.unwrap();
    let after = ["evalsha", "eval", "set"].map(|command| calls(&bench, command));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 0]);
    // All of them are the script's own: one more may set the counter to the clock.
    assert!((4..=5).contains(&(after[2] - before[2])), "{before:?} {after:?}");
    let tokens: Vec<_> = guards.held().map(|held| held.fence().unwrap().get()).collect();
    assert!(tokens.windows(2).all(|pair| pair[1] == pair[0] + 1), "{tokens:?}");
    // The server notes every command, the latest first.
    let _: () = redis::cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(0).query(&mut bench.raw()).unwrap();
    guards.release().await.unwrap();
    let log: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG").arg("GET").arg(100).query(&mut bench.raw()).unwrap();
    let commands =
        log.into_iter().rev().map(|mut entry| redis::from_redis_value::<Vec<String>>(entry.remove(3)).unwrap());
    let freed: Vec<_> = commands.filter(|command| command[0] == "DEL").map(|command| command[1].clone()).collect();
    assert_eq!(freed, [3, 2, 1, 0].map(name), "given back in reverse");
    assert_eq!(names(&bench), [FENCE]);
}

#[tokio::test]
async fn if_one_lock_is_taken_or_waited_for_none_of_the_locks_is_changed() {
    let bench = Bench::own();
    let (redis, other) = (bench.open().await, bench.open().await);
    let held = take(&other, &claim("b", LONG)).await;
    let before = (names(&bench), bench.raw().get::<_, String>(FENCE).unwrap());
    let answer = redis.try_acquire_all(&claims(LONG)).await.unwrap();
    assert!(matches!(answer, Together::Contended), "{answer:?}");
    assert_eq!((names(&bench), bench.raw().get::<_, String>(FENCE).unwrap()), before);
    other.release(&held).await.unwrap();

    // Free, except for an old queue that nobody has removed yet.
    let line = format!("{}:q", names::of_text("c"));
    let _: () = bench.raw().zadd(&line, "somebody", 1).unwrap();
    let answer = redis.try_acquire_all(&claims(LONG)).await.unwrap();
    assert!(matches!(answer, Together::Contended), "{answer:?}");
    assert_eq!(names(&bench), [FENCE, &line]);
}

#[tokio::test]
async fn an_owner_that_asks_again_has_all_locks_once_with_higher_tokens() {
    let bench = Bench::own();
    let redis = bench.open().await;
    let wanted = claims(LONG);
    let Together::Acquired(first) = redis.try_acquire_all(&wanted).await.unwrap() else { panic!() };
    // One of them has ended meanwhile: it is free.
    let _: () = bench.raw().del(names::of_text("b")).unwrap();
    // So long that the leases of the first time would show.
    tokio::time::sleep(2 * SECOND).await;
    let Together::Acquired(second) = redis.try_acquire_all(&wanted).await.unwrap() else { panic!() };
    for ((first, second), key) in first.iter().zip(&second).zip(["a", "b", "c"]) {
        assert!(token(first) < token(second));
        let left: u64 = bench.raw().pttl(names::of_text(key)).unwrap();
        assert!(left > 8500, "{key} is armed for {left} ms");
        assert_eq!(redis.release(second).await.unwrap(), Released::Released);
    }
    assert_eq!(names(&bench), [FENCE]);
}

#[tokio::test]
async fn a_foreign_value_under_one_of_several_names_is_reported_with_that_name() {
    let bench = Bench::own();
    let registry = registry(&bench).await;
    let _: () = bench.raw().lpush(name(2), "a list").unwrap();
    let error = lock(&registry).acquire().await.unwrap_err();
    let key = LockKey::new("default", Key::text("all:").value(&2)).unwrap();
    assert_eq!((error.kind(), error.key()), (&ErrorKind::KeyConflict, Some(key.as_str())), "{error}");
    let shown: Vec<_> = names(&bench).into_iter().filter(|name| name != FENCE).collect();
    assert_eq!(shown, [name(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_for_several_locks_leaves_nothing() {
    let bench = Bench::own();
    let registry = registry(&bench).await;
    lock(&registry).acquire().await.unwrap().release().await.unwrap();
    for round in 0..40 {
        let asking = lock(&registry).acquire();
        let _ = tokio::time::timeout(Duration::from_micros(round * 25), asking).await;
    }
    let report = registry.shutdown(LONG).await;
    assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    assert_eq!(names(&bench), [FENCE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_several_locks_is_renewed_lost_and_kept_like_a_single_lock() {
    let bench = Bench::own();
    let registry = registry(&bench).await;
    let guards = lock(&registry).ttl(3 * SECOND).name("transfer").min_hold(300 * MS).acquire().await.unwrap();
    tokio::time::sleep(3500 * MS).await;
    guards.check().unwrap();
    for n in 0..4 {
        let note = registry.lock(Key::text("all:").value(&n)).holders().await.unwrap().note().cloned().unwrap();
        assert_eq!(note.site(), Some("transfer"));
    }
    let _: () = bench.raw().del(name(3)).unwrap();
    let lost = async {
        while guards.check().is_ok() {
            tokio::time::sleep(5 * MS).await;
        }
    };
    tokio::time::timeout(LONG, lost).await.unwrap();
    drop(guards);

    let guards = lock(&registry).min_hold(LONG).acquire().await.unwrap();
    guards.release().await.unwrap();
    let error = lock(&registry).wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy, "kept: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_of_two_processes_exclude_each_other_on_each_of_several_locks() {
    let bench = Bench::own();
    let registries = [registry(&bench).await, registry(&bench).await];
    let inside: Arc<[std::sync::atomic::AtomicI64; 5]> = Arc::default();
    let tasks = (0..16_usize).map(|n| {
        let (registry, inside) = (registries[n % 2].clone(), inside.clone());
        tokio::spawn(async move {
            for round in 0..10 {
                let mine = [(n + round) % 5, (n + 2 * round + 1 + n % 3) % 5];
                let keys = mine.map(|key| Key::text("all:").value(&key));
                let guards = registry.lock_all(keys).ttl(LONG).wait(Wait::UpTo(6 * LONG)).acquire().await.unwrap();
                let mine: std::collections::BTreeSet<_> = mine.into_iter().collect();
                for key in &mine {
                    assert_eq!(inside[*key].fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                }
                guards.check().unwrap();
                for key in &mine {
                    inside[*key].fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                }
                guards.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    for registry in registries {
        let report = registry.shutdown(LONG).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    }
    let left: Vec<_> = names(&bench).into_iter().filter(|name| name != FENCE).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_hold_of_several_is_renewed_in_the_store() {
    let bench = Bench::own();
    let redis = bench.open().await;
    let Together::Acquired(holds) = redis.try_acquire_all(&claims(LONG)).await.unwrap() else { panic!() };
    for hold in &holds {
        assert!(matches!(confirm(&redis, hold).await, dlock_contract::Standing::Renewed(_)));
    }
    let one = redis.try_acquire_all(&claims(LONG)[..1]).await.unwrap();
    assert!(matches!(one, Together::OneByOne), "one lock needs no script: {one:?}");
}
