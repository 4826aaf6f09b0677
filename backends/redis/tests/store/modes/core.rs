//! The same through the engine, as a program uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Instant;

use dlock::{ErrorKind, Key, Lock, Mode, OncePer, Registry, Wait};
use dlock_testkit::lateness;

use super::bench::{Bench, LONG, MS, SECOND, permits, took};

async fn registry(bench: &Bench) -> Registry {
    let registry = Registry::new();
    registry.install("redis", bench.open().await).unwrap();
    registry.set_default("redis").unwrap();
    registry
}

fn lock(registry: &Registry, bench: &Bench) -> Lock {
    let key = Key::text("core:").value(&bench.key.as_str());
    registry.lock(key).ttl(3 * SECOND).wait(Wait::UpTo(LONG))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn permits_and_readers_of_two_processes_share_a_lock() {
    let bench = Arc::new(Bench::shared());
    let registries = [registry(&bench).await, registry(&bench).await];
    for (mode, most) in [(permits(3), 3), (Mode::Read, i64::MAX), (Mode::Write, 1)] {
        let inside = Arc::new(AtomicI64::new(0));
        let tasks = (0..16).map(|n| {
            let (bench, registry, inside) = (bench.clone(), registries[n % 2].clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = lock(&registry, &bench).mode(mode).acquire().await.unwrap();
                    assert!(inside.fetch_add(1, SeqCst) < most);
                    assert_eq!(guard.slot().is_some(), most == 3);
                    // Sometimes longer than a pushed grant lasts, so the hold must be renewed.
                    tokio::time::sleep(if n == 0 { 300 * MS } else { MS }).await;
                    guard.check().unwrap();
                    inside.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
    for registry in registries {
        let report = registry.shutdown(LONG).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_outlives_its_ttl_and_a_dropped_guard_frees_it() {
    let bench = Bench::shared();
    let registry = registry(&bench).await;
    let hold = || lock(&registry, &bench).mode(permits(1)).acquire();
    let guard = hold().await.unwrap();
    tokio::time::sleep(3500 * MS).await;
    guard.confirm().await.unwrap();
    drop(guard);
    let before = Instant::now();
    hold().await.unwrap().release().await.unwrap();
    // Its lease would last for two seconds at least.
    lateness::assert_within(1500 * MS, before, "the next grant");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_hold_and_once_per_work_over_redis() {
    let bench = Bench::shared();
    let registry = registry(&bench).await;
    let before = Instant::now();
    lock(&registry, &bench).min_hold(300 * MS).run(async |_| ()).await.unwrap();
    lock(&registry, &bench).run(async |_| ()).await.unwrap();
    took(before, 290 * MS);
    let once = OncePer::new(3600 * SECOND).rerun(true);
    let run = || lock(&registry, &bench).once_per(once).run(async |_| ());
    run().await.unwrap();
    assert_eq!(*run().await.unwrap_err().kind(), ErrorKind::AlreadyRun);
    let success = lock(&registry, &bench).last_success().await.unwrap().unwrap();
    assert_eq!(success.note.pid(), Some(std::process::id()));
}
