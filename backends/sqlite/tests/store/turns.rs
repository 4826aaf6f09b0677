//! A process has at most eight holds in a row while another process waits.

use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_testkit::holds::claim;

use crate::store::{Store, TTL};

/// Asks as a caller that waits does.
async fn ask(store: &Store, by: &Sqlite, key: &str) -> Attempt {
    let until = Queue::until(store.clock.now().after(TTL));
    by.try_acquire(&claim(key, TTL), until).await.unwrap()
}

/// So many holds in a row, each of which is released; whether there were as many.
async fn row(store: &Store, by: &Sqlite, holds: u32) -> bool {
    for _ in 0..holds {
        let Attempt::Acquired(hold) = ask(store, by, "a").await else { return false };
        assert_eq!(by.release(&hold).await.unwrap(), Released::Released);
    }
    true
}

/// On a clock that stands still, so that no pause ends a row.
#[tokio::test]
async fn after_eight_holds_in_a_row_a_lock_is_left_to_a_process_that_waits() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    assert!(row(&store, &one, 100).await, "nobody else waits");
    let Attempt::Acquired(hold) = ask(&store, &one, "a").await else { panic!("refused") };
    let waiting = claim("a", TTL);
    let until = Queue::until(store.clock.now().after(TTL));
    assert!(matches!(other.try_acquire(&waiting, until).await.unwrap(), Attempt::Contended(_)));
    one.release(&hold).await.unwrap();
    // The row may have begun before the other one came.
    let mut more = 0;
    while row(&store, &one, 1).await {
        more += 1;
        assert!(more <= 8, "nine holds in a row, and another process waits");
    }
    let Attempt::Acquired(hold) = other.try_acquire(&waiting, until).await.unwrap() else { panic!("not left to it") };
    other.release(&hold).await.unwrap();
    assert!(row(&store, &one, 100).await, "nobody else waits any more");
}

/// Such as a process that stands still.
#[tokio::test]
async fn a_waiter_that_does_not_ask_delays_nobody_for_long() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let Attempt::Acquired(hold) = ask(&store, &one, "a").await else { panic!("refused") };
    let waiting = claim("a", TTL);
    let until = Queue::until(store.clock.now().after(TTL));
    assert!(matches!(other.try_acquire(&waiting, until).await.unwrap(), Attempt::Contended(_)));
    one.release(&hold).await.unwrap();
    assert!(!row(&store, &one, 9).await);
    store.clock.advance(Duration::from_millis(49));
    assert!(!row(&store, &one, 1).await);
    store.clock.advance(Duration::from_millis(1));
    assert!(row(&store, &one, 8).await);
    // Once it has given up, nobody waits for it.
    other.abandon(&waiting).await.unwrap();
    assert!(row(&store, &one, 100).await);
}
