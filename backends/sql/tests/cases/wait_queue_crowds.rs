//! Many callers of the engine that want one lock, through wait queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dlock::{Key, Registry, Wait};
use dlock_testkit::wait_until;

use super::kit::{Database, TTL};

row_cases! {
    callers_of_several_registries_exclude_each_other_and_all_have_their_turns
    callers_that_give_up_in_the_middle_leave_no_waiter_and_no_lock
}

const REGISTRIES: usize = 3;
const TASKS: usize = 4;

/// A registry has a store of its own, as a process has.
async fn registries(database: &Database) -> Vec<Registry> {
    let mut all = Vec::new();
    for _ in 0..REGISTRIES {
        let registry = Registry::new();
        registry.install("rows", database.store().await).unwrap();
        all.push(registry);
    }
    all
}

async fn nothing_is_left(database: &Database) {
    wait_until("nobody holds the lock or is in its queue", async || {
        database.held().await.is_empty()
            && database.waiting_sessions().await.is_empty()
            && database.turn_sessions().await.is_empty()
    })
    .await
    .unwrap();
}

async fn callers_of_several_registries_exclude_each_other_and_all_have_their_turns(database: Database) {
    const TURNS: usize = 12;
    let (is_held, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let registries = registries(&database).await;
    let mut tasks = Vec::new();
    for (number, registry) in registries.iter().enumerate() {
        for _ in 0..TASKS {
            let (registry, is_held, last) = (registry.clone(), is_held.clone(), last.clone());
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let lock = registry.lock(Key::text("crowd")).ttl(TTL).wait(Wait::UpTo(TTL * 4));
                    let guard = lock.acquire().await.unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
                    let token = guard.fence().unwrap().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "a token that does not rise");
                    tokio::task::yield_now().await;
                    is_held.store(false, Ordering::SeqCst);
                    // A guard that is dropped is released by our own thread.
                    if (turn + number) % 3 == 0 {
                        drop(guard);
                    } else {
                        guard.release().await.unwrap();
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    nothing_is_left(&database).await;
}

async fn callers_that_give_up_in_the_middle_leave_no_waiter_and_no_lock(database: Database) {
    let registries = registries(&database).await;
    let mut tasks = Vec::new();
    for registry in &registries {
        for _ in 0..TASKS {
            let registry = registry.clone();
            tasks.push(tokio::spawn(async move {
                let mut held = 0;
                for _ in 0..30 {
                    let lock = registry.lock(Key::text("crowd")).ttl(TTL).wait(Wait::UpTo(TTL));
                    let patience = Duration::from_micros(fastrand::u64(0..80_000));
                    if let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await {
                        held += 1;
                        guard.unwrap().release().await.unwrap();
                    }
                }
                held
            }));
        }
    }
    let mut held = 0;
    for task in tasks {
        held += task.await.unwrap();
    }
    assert!(held > 0 && held < REGISTRIES * TASKS * 30, "{held} had the lock: nothing is proven");
    nothing_is_left(&database).await;
    // The lock can be taken at once.
    registries[0].lock(Key::text("crowd")).ttl(TTL).try_acquire().await.unwrap().release().await.unwrap();
}
