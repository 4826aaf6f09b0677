//! The wait queue when a caller asks again at once for the lock that it has just released.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Key, Registry, Wait};
use dlock_contract::{Attempt, Backend, Released};
use dlock_testkit::holds::{stand, take, until};
use dlock_testkit::wait_until;
use tokio::sync::Notify;

use super::kit::{Database, TTL};
use super::wait_queue::{granted, hold_with_turn, join_queue};

row_cases! {
    a_caller_that_releases_after_a_long_hold_waits_behind_the_others
    a_holder_that_never_waited_waits_behind_those_who_came_during_its_long_hold
    a_holder_that_takes_a_lock_again_and_again_lets_a_waiter_in
    two_callers_with_long_holds_take_turns
    a_lock_that_nobody_else_wants_needs_no_session_in_a_queue
}

/// Longer than a store remembers that others wanted a lock.
const LONG_HOLD: Duration = Duration::from_millis(1200);

async fn a_caller_that_releases_after_a_long_hold_waits_behind_the_others(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let mut hold = hold_with_turn(&database, &one, "a").await;
    for _ in 0..3 {
        let (_, waits) = join_queue(&database, &other, "a").await;
        tokio::time::sleep(LONG_HOLD).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        let behind = stand(&one, &database.claim("a", TTL)).await;
        assert_eq!(other.release(&granted(waits).await).await.unwrap(), Released::Released);
        hold = granted(behind).await;
    }
}

async fn a_holder_that_never_waited_waits_behind_those_who_came_during_its_long_hold(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    for key in ["a", "b", "c"] {
        let hold = take(&one, &database.claim(key, TTL)).await;
        let waits = stand(&other, &database.claim(key, TTL)).await;
        wait_until("the waiter has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
        tokio::time::sleep(LONG_HOLD).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        let behind = stand(&one, &database.claim(key, TTL)).await;
        assert_eq!(other.release(&granted(waits).await).await.unwrap(), Released::Released);
        assert_eq!(one.release(&granted(behind).await).await.unwrap(), Released::Released);
        wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
    }
}

async fn a_holder_that_takes_a_lock_again_and_again_lets_a_waiter_in(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    for key in ["a", "b", "c", "d", "e"] {
        let mut hold = take(&one, &database.claim(key, TTL)).await;
        let waits = stand(&other, &database.claim(key, TTL)).await;
        wait_until("the waiter has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
        let mut turns = 0;
        let behind = loop {
            // Most looks of the waiter meet a hold.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            turns += 1;
            assert!(turns <= 8, "the holder took the lock again {turns} times while another one waited");
            match one.try_acquire(&database.claim(key, TTL), until()).await.unwrap() {
                Attempt::Acquired(next) => hold = next,
                Attempt::Contended(behind) => break behind,
                Attempt::AlreadyRun => panic!("a claim without a period"),
            }
        };
        assert_eq!(other.release(&granted(waits).await).await.unwrap(), Released::Released);
        assert_eq!(one.release(&granted(behind).await).await.unwrap(), Released::Released);
        wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
    }
}

async fn two_callers_with_long_holds_take_turns(database: Database) {
    const TURNS: usize = 6;
    let (turns, other_waits) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
    // A registry has a store of its own, as a process has.
    let registries = [Registry::new(), Registry::new()];
    for registry in &registries {
        registry.install("rows", database.store().await).unwrap();
    }
    let mut tasks = Vec::new();
    for (number, registry) in registries.into_iter().enumerate() {
        let (turns, taken, other_waits) = (turns.clone(), turns.clone(), other_waits.clone());
        tasks.push(tokio::spawn(async move {
            while turns.lock().unwrap().len() < TURNS {
                let lock = registry.lock(Key::text("turns")).ttl(TTL).wait(Wait::UpTo(TTL));
                let guard = lock.acquire().await.unwrap();
                turns.lock().unwrap().push(number);
                // The first hold lasts until the other one waits, which would find the lock free otherwise.
                if turns.lock().unwrap().len() == 1 {
                    other_waits.notified().await;
                }
                tokio::time::sleep(LONG_HOLD).await;
                guard.release().await.unwrap();
            }
        }));
        // The first one has the lock without a wait.
        wait_until("it has the lock", async || !taken.lock().unwrap().is_empty()).await.unwrap();
    }
    wait_until("the other one waits", async || database.turn_sessions().await.len() == 1).await.unwrap();
    other_waits.notify_one();
    for task in tasks {
        task.await.unwrap();
    }
    let turns = turns.lock().unwrap();
    assert!(
        turns.windows(2).all(|pair| pair[0] != pair[1]),
        "two turns in a row while the other one waited: {turns:?}"
    );
}

async fn a_lock_that_nobody_else_wants_needs_no_session_in_a_queue(database: Database) {
    let store = database.store().await;
    for hold in [Duration::ZERO, Duration::from_millis(60)] {
        for _ in 0..20 {
            let Attempt::Acquired(taken) = store.try_acquire(&database.claim("a", TTL), until()).await.unwrap() else {
                panic!("nobody else has it")
            };
            assert!(database.turn_sessions().await.is_empty(), "a session has the turn for a lock that nobody wants");
            tokio::time::sleep(hold).await;
            assert_eq!(store.release(&taken).await.unwrap(), Released::Released);
        }
    }
}
