//! Many at once, with a checker.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use dlock::Mode;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::token;
use dlock_testkit::lateness;

use super::bench::{Bench, LONG, MS, SECOND, permits, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_tasks_share_three_permits() {
    let bench = Arc::new(Bench::shared());
    let stores = [Arc::new(bench.open().await), Arc::new(bench.open().await)];
    let inside: Arc<[AtomicI64; 3]> = Arc::default();
    let (all, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    lateness::watch();
    let began = Instant::now();
    let tasks = (0..20).map(|n| {
        let (bench, store) = (bench.clone(), stores[n % 2].clone());
        let (inside, all, most) = (inside.clone(), all.clone(), most.clone());
        tokio::spawn(async move {
            for _ in 0..25 {
                let hold = wait(&*store, &bench.claim(permits(3), LONG), 20 * SECOND).await;
                let slot = usize::try_from(hold.slot.unwrap()).unwrap();
                assert_eq!(inside[slot].fetch_add(1, SeqCst), 0, "two in slot {slot}");
                let now = all.fetch_add(1, SeqCst) + 1;
                assert!(now <= 3, "{now} inside");
                most.fetch_max(now, SeqCst);
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1500))).await;
                all.fetch_sub(1, SeqCst);
                inside[slot].fetch_sub(1, SeqCst);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let most = most.load(SeqCst);
    assert!(most == 3, "at most {most} were inside at once: nothing is proven");
    assert_eq!(bench.keys(), [""; 0]);
    // By pushes, not by polls.
    lateness::assert_within(20 * SECOND, began, "all rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_and_writers_never_meet() {
    let bench = Arc::new(Bench::shared());
    let stores = [Arc::new(bench.open().await), Arc::new(bench.open().await)];
    // Readers count up, a writer sets it far below zero.
    let state = Arc::new(AtomicI64::new(0));
    let (last_write, together) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(0)));
    lateness::watch();
    let began = Instant::now();
    let tasks = (0..16).map(|n| {
        let (bench, store) = (bench.clone(), stores[n % 2].clone());
        let (state, last_write, together) = (state.clone(), last_write.clone(), together.clone());
        tokio::spawn(async move {
            for round in 0..30 {
                let writes = (n + round) % 5 == 0;
                let mode = if writes { Mode::Write } else { Mode::Read };
                let hold = wait(&*store, &bench.claim(mode, LONG), 20 * SECOND).await;
                let present = token(&hold);
                if writes {
                    assert_eq!(state.fetch_sub(1000, SeqCst), 0, "a writer is not alone");
                    let before = last_write.swap(present, SeqCst);
                    assert!(before < present, "{before} {present}");
                } else {
                    let readers = state.fetch_add(1, SeqCst) + 1;
                    assert!(readers > 0, "a reader beside a writer");
                    together.fetch_max(readers, SeqCst);
                    assert!(last_write.load(SeqCst) < present, "a reader's token is below a writer's before it");
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1500))).await;
                state.fetch_add(if writes { 1000 } else { -1 }, SeqCst);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert!(together.load(SeqCst) > 1, "no two readers met: nothing is proven");
    assert_eq!(bench.keys(), [""; 0]);
    lateness::assert_within(20 * SECOND, began, "all rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_that_die_in_between_stop_nobody() {
    let bench = Arc::new(Bench::shared());
    let store = Arc::new(bench.open().await);
    let inside = Arc::new(AtomicI64::new(0));
    let tasks = (0..12).map(|n| {
        let (bench, store, inside) = (bench.clone(), store.clone(), inside.clone());
        tokio::spawn(async move {
            for round in 0..8 {
                let dies = (n + round) % 6 == 0;
                // Longer than a busy machine keeps a task away from its thread.
                let ttl = if dies { 400 * MS } else { LONG };
                let hold = wait(&*store, &bench.claim(permits(2), ttl), 30 * SECOND).await;
                assert!(inside.fetch_add(1, SeqCst) < 2);
                tokio::time::sleep(2 * MS).await;
                inside.fetch_sub(1, SeqCst);
                if !dies {
                    store.release(&hold).await.unwrap();
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    bench.empty(4 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiter_is_notified_and_does_not_poll() {
    let bench = Arc::new(Bench::own());
    let stores = [Arc::new(bench.open().await), Arc::new(bench.open().await)];
    for modes in [[permits(2), permits(2)], [Mode::Read, Mode::Write]] {
        let before = bench.calls();
        let tasks = (0..12).map(|n| {
            let (bench, store) = (bench.clone(), stores[n % 2].clone());
            tokio::spawn(async move {
                for round in 0..25 {
                    let hold = wait(&*store, &bench.claim(modes[(n + round) % 2], LONG), 20 * SECOND).await;
                    tokio::time::sleep(MS).await;
                    store.release(&hold).await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let after = bench.calls();
        let spent = |name: &str| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
        // One request to ask and one to end; the first caller of a process asks twice.
        let each = (spent("evalsha") + spent("eval")) as f64 / 300.0;
        assert!((1.9..2.3).contains(&each), "{each} commands for each hold");
    }
    assert_eq!(bench.keys(), [""; 0]);
}
