//! The same through the engine, as a program uses it.

use dlock::{ErrorKind, Key, Mode, Wait};
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND};
use super::python::redis_py;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_that_both_tools_raise_loses_no_count() {
    const EACH: u32 = 25;
    let bench = Bench::new();
    let counter = format!("count:{}", bench.name);
    let mut python = redis_py(&bench.url);
    let registries = [bench.registry("keys=literal").await, bench.registry("keys=literal").await];
    python.begin(&format!("count {} {counter} {EACH}", bench.name));
    let tasks = (0..4).map(|n| {
        let (registry, key, url, counter) =
            (registries[n % 2].clone(), bench.text(), bench.url.clone(), counter.clone());
        tokio::spawn(async move {
            let mut raw = redis::Client::open(url).unwrap().get_connection().unwrap();
            for _ in 0..EACH {
                let guard = registry.lock(key.clone()).ttl(LONG).wait(Wait::UpTo(2 * LONG)).acquire().await.unwrap();
                let before: Option<u32> = raw.get(&counter).unwrap();
                tokio::time::sleep(MS).await;
                let _: () = raw.set(&counter, before.unwrap_or(0) + 1).unwrap();
                guard.release().await.unwrap();
                // Callers of dlock hand the lock on among themselves. redis-py gets it only if the queue is empty.
                tokio::time::sleep(fastrand::u32(0..30) * MS).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert!(tokio::task::spawn_blocking(move || python.end()).await.unwrap());
    let counted: u32 = bench.raw().get(&counter).unwrap();
    assert_eq!(counted, 5 * EACH);
    let _: () = bench.raw().del(&counter).unwrap();
    for registry in registries {
        let report = registry.shutdown(LONG).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_wait_hears_when_the_foreign_lease_ends() {
    let bench = Bench::new();
    let mut python = redis_py(&bench.url);
    let registry = bench.registry("keys=literal").await;
    assert!(python.does(&format!("acquire {} 10 0", bench.name)));
    let error = registry.lock(bench.text()).ttl(LONG).try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.retry_after().unwrap() <= 10 * SECOND);
    assert!(registry.lock(bench.text()).is_locked().await.unwrap());
    let waited = registry.lock(bench.text()).ttl(LONG).wait(Wait::UpTo(SECOND)).acquire().await.unwrap_err();
    assert_eq!(*waited.kind(), ErrorKind::WaitTimeout, "{waited}");
    assert!(python.does(&format!("release {}", bench.name)));
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_option_that_a_layout_cannot_serve_is_refused_before_any_request() {
    let bench = Bench::new();
    let unsupported = |error: dlock::Error| matches!(error.kind(), ErrorKind::Unsupported { .. });
    for parameter in ["keys=literal", "layout=redisson"] {
        let registry = bench.registry(parameter).await;
        let lock = |key| registry.lock(key).ttl(SECOND);
        for mode in [Mode::Read, Mode::Write, Mode::Permits(std::num::NonZeroU32::MIN)] {
            assert!(unsupported(lock(bench.text()).mode(mode).try_acquire().await.unwrap_err()), "{parameter}");
        }
        // Two keys that would be one name.
        for (one, two) in [("a:b", "c"), ("a", "b:c")] {
            let both = Key::text("stock:").value(one).and_text(":").value(two);
            assert!(unsupported(lock(both).wait(Wait::UpTo(SECOND)).acquire().await.unwrap_err()), "{parameter}");
        }
        assert_eq!(registry.shutdown(LONG).await.unconfirmed, 0);
    }
    let registry = bench.registry("layout=redisson").await;
    let lock = || registry.lock(bench.text()).ttl(SECOND);
    assert!(unsupported(lock().fair(true).try_acquire().await.unwrap_err()));
    assert!(unsupported(lock().min_hold(MS).try_acquire().await.unwrap_err()));
    assert_eq!(bench.keys(), [""; 0]);
}

/// A caller may choose a value that another key has as its text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_keys_of_one_name_are_one_lock() {
    let bench = Bench::new();
    for parameter in ["keys=literal", "layout=redisson"] {
        let registry = bench.registry(parameter).await;
        let (one, other) = (Key::text("twice:").value("admin"), Key::text("twice:admin"));
        let guards = registry.lock_all([one.clone(), other.clone()]).ttl(LONG).acquire().await.unwrap();
        // Each key that was written has a hold, and both have the same one.
        let tokens: Vec<_> = guards.held().map(|held| held.fence().unwrap().get()).collect();
        assert!(tokens.len() == 2 && tokens[0] == tokens[1], "{parameter}: {tokens:?}");
        tokio::time::sleep(50 * MS).await;
        guards.check().unwrap();
        guards.release().await.unwrap();
        let nested = registry.lock(other).ttl(LONG);
        let ran = registry.lock(one).ttl(LONG).run(|_| async { nested.acquire().await.map(drop) }).await.unwrap();
        assert_eq!(*ran.unwrap_err().kind(), ErrorKind::WouldDeadlock, "{parameter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_has_our_locks_and_foreign_ones_and_no_plain_values() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    let guard = registry.lock(bench.text()).acquire().await.unwrap();
    let (foreign, plain) = (format!("{}:foreign", bench.name), format!("{}:plain", bench.name));
    let _: () = redis::cmd("SET").arg(&foreign).arg("a secret").arg("PX").arg(60_000).query(&mut bench.raw()).unwrap();
    let _: () = redis::cmd("SET").arg(&plain).arg("a price").query(&mut bench.raw()).unwrap();
    let mut locks = registry.locks().prefix(bench.name.clone());
    let mut listed = Vec::new();
    loop {
        let page = locks.clone().page().await.unwrap();
        listed.extend(page.locks.into_iter().map(|lock| {
            let note = lock.state.note().unwrap().as_str().to_owned();
            (lock.key.as_str().to_owned(), note.contains("foreign client"), note.contains("secret"))
        }));
        match page.next {
            Some(next) => locks = locks.after(next),
            None => break,
        }
    }
    listed.sort();
    // A scan may name a key twice.
    listed.dedup();
    assert_eq!(listed, [(bench.name.clone(), false, false), (foreign.clone(), true, false)]);
    let () = redis::cmd("DEL").arg(&[&foreign, &plain]).query(&mut bench.raw()).unwrap();
    guard.release().await.unwrap();
}
