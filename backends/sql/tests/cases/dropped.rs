//! Callers that go away at any point, and renewals that nobody waits for.

use std::time::Duration;

use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::drop_after;
use dlock_testkit::holds::{confirm, take};

use super::kit::Database;
use super::support::{abandon, attempt};

row_cases! {
    a_dropped_attempt_holds_nothing_once_it_is_undone
    a_dropped_start_of_a_run_gives_its_period_back
    a_dropped_release_frees_the_lock_or_leaves_it_held
    a_dropped_renewal_does_not_lose_the_lock
}

/// Longer than a test waits: a lock that a caller has left must not end by itself.
const LONG: Duration = Duration::from_secs(600);

async fn a_dropped_attempt_holds_nothing_once_it_is_undone(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let (mut dropped, mut granted) = (0, 0);
    for round in 0.. {
        if round >= 150 && dropped > 10 && granted > 10 {
            break;
        }
        assert!(round < 5000, "{dropped} dropped, {granted} granted: nothing is proven");
        // Now and then a key without a row, which is an insert.
        let text = (round / 10).to_string();
        let claim = database.claim(&text, LONG);
        let pause = Duration::from_micros(fastrand::u64(0..1500)) * (1 + round % 4);
        match drop_after(fastrand::usize(0..15), pause, one.try_acquire(&claim, Queue::Leave)).await {
            Some(_) => granted += 1,
            None => dropped += 1,
        }
        abandon(&one, &claim).await;
        let next = attempt(&other, &database.claim(&text, LONG)).await.unwrap();
        assert_eq!(other.release(&next.expect("held by a caller that is gone")).await.unwrap(), Released::Released);
    }
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_dropped_start_of_a_run_gives_its_period_back(database: Database) {
    let store = database.store().await;
    const DAY: Duration = Duration::from_secs(86400);
    let (mut dropped, mut rounds) = (0, 0);
    while dropped < 20 {
        rounds += 1;
        assert!(rounds < 2000, "nothing is proven");
        let claim = database.run_claim("run", DAY);
        let pause = Duration::from_micros(fastrand::u64(0..1000));
        let asking = store.try_acquire(&claim, Queue::Leave);
        dropped += u32::from(drop_after(fastrand::usize(1..5), pause, asking).await.is_none());
        abandon(&store, &claim).await;
    }
    attempt(&store, &database.run_claim("run", DAY)).await.unwrap().expect("a period that nobody ran is used up");
}

async fn a_dropped_release_frees_the_lock_or_leaves_it_held(database: Database) {
    let store = database.store().await;
    let (mut freed, mut left) = (0, 0);
    for round in 0.. {
        if round >= 80 && freed > 5 && left > 5 {
            break;
        }
        assert!(round < 5000, "{freed} freed, {left} left: nothing is proven");
        let hold = take(&store, &database.claim("a", LONG)).await;
        let pause = Duration::from_micros(fastrand::u64(0..1500)) * (round % 4);
        drop_after(fastrand::usize(0..6), pause, store.release(&hold)).await;
        // Undone by the same owner: it is never an error that it was done already.
        match store.release(&hold).await.unwrap() {
            Released::Released => left += 1,
            Released::NotOwner => freed += 1,
        }
    }
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_dropped_renewal_does_not_lose_the_lock(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", LONG)).await;
    let mut dropped = 0;
    for round in 0.. {
        if round >= 60 && dropped > 5 {
            break;
        }
        assert!(round < 5000, "{dropped} dropped: nothing is proven");
        let pause = Duration::from_micros(fastrand::u64(0..300));
        dropped += u32::from(drop_after(1, pause, store.renew(&[&hold])).await.is_none());
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    }
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
