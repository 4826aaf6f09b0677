//! Callers that wait for a lock in the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Released, Signal, Standing};
use dlock_testkit::holds::{assert_all_different, confirm, take, token};
use dlock_testkit::lateness;

use super::support::{take_soon, until};
use crate::named_kit::{Database, TTL, open};

named_cases! {
    a_wait_ends_with_the_lock_at_the_release
    a_dropped_wait_gives_its_place_up
    a_wait_that_runs_out_asks_again
    waiters_of_two_backends_never_hold_at_once
}

async fn a_wait_ends_with_the_lock_at_the_release(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut seen = Vec::new();
    // The machine may be late once. A waiter that asks again by itself is late each time.
    for _ in 0..5 {
        let after = time_of_a_hand_over(&database, &one, &other).await;
        if after < Duration::from_millis(500) {
            return;
        }
        seen.push(after);
    }
    panic!("handed over after {seen:?}: if the machine was busy all the time, nothing is proven");
}

async fn time_of_a_hand_over(database: &Database, one: &impl Backend, other: &impl Backend) -> Duration {
    let hold = take(one, &database.claim("a", TTL)).await;
    let second = database.claim("a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, until(TTL)).await.unwrap() else { panic!("two holders") };
    let waiter = tokio::spawn(wake.signal.unwrap());
    database.until_one_waits().await;
    assert!(!waiter.is_finished());
    let released = Clock::system().now();
    one.release(&hold).await.unwrap();
    let Signal::Granted(granted) = waiter.await.unwrap().unwrap() else { panic!("no lock") };
    let after = Clock::system().now().since(released);
    assert!(granted.validity.from > released, "valid since before it was granted");
    assert!(token(&granted) > token(&hold));
    assert!(matches!(confirm(other, &granted).await, Standing::Renewed(_)));
    assert_eq!(other.release(&granted).await.unwrap(), Released::Released);
    after
}

async fn a_dropped_wait_gives_its_place_up(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    lateness::watch();
    for _ in 0..5 {
        let hold = take_soon(&one, &database.claim("a", TTL)).await.0;
        let quitter = database.claim("a", TTL);
        let Attempt::Contended(wake) = other.try_acquire(&quitter, until(TTL)).await.unwrap() else { panic!() };
        let waiter = tokio::spawn(wake.signal.unwrap());
        database.until_one_waits().await;
        waiter.abort();
        let _ = waiter.await;
        other.abandon(&quitter).await.unwrap();
        one.release(&hold).await.unwrap();
        let asked = Instant::now();
        let next = take_soon(&one, &database.claim("a", TTL)).await.0;
        lateness::assert_within(Duration::from_secs(5), asked, "the next grant behind a dropped waiter");
        one.release(&next).await.unwrap();
    }
}

async fn a_wait_that_runs_out_asks_again(database: Database) {
    lateness::watch();
    let (one, other) = (open(&database).await, open(&database).await);
    let _hold = take(&one, &database.claim("a", TTL)).await;
    let second = database.claim("a", TTL);
    for wait in [Duration::ZERO, Duration::from_millis(900)] {
        let Attempt::Contended(wake) = other.try_acquire(&second, until(wait)).await.unwrap() else { panic!() };
        let started = Instant::now();
        assert!(matches!(wake.signal.unwrap().await.unwrap(), Signal::Ask));
        lateness::assert_within(Duration::from_secs(10), started, "the end of the wait");
    }
}

async fn waiters_of_two_backends_never_hold_at_once(database: Database) {
    let stores = [Arc::new(open(&database).await), Arc::new(open(&database).await)];
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (store, inside) = (stores[number % 2].clone(), inside.clone());
        let claims: Vec<_> = (0..20).map(|_| database.claim("a", TTL)).collect();
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for claim in claims {
                let hold = match store.try_acquire(&claim, until(TTL)).await.unwrap() {
                    Attempt::Acquired(hold) => hold,
                    Attempt::AlreadyRun => panic!("a claim without a period"),
                    Attempt::Contended(wake) => match wake.signal.unwrap().await.unwrap() {
                        Signal::Granted(hold) => hold,
                        Signal::Ask => panic!("waited too long"),
                    },
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                tokens.push(token(&hold));
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
            tokens
        }));
    }
    assert_all_different(tasks, 120).await;
}
