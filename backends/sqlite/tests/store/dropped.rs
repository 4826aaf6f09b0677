//! Dropped requests: nobody waits for their answers.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Claim, Queue};
use dlock_testkit::drop_after;
use dlock_testkit::holds::{claim, take};

use crate::store::{Store, TTL, is_held};

#[tokio::test]
async fn a_dropped_attempt_leaves_no_transaction_and_no_row() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    take(&one, &claim("warm", TTL)).await;
    let (mut dropped, mut granted) = (0, 0);
    for round in 0.. {
        if round >= 200 && dropped > 10 && granted > 10 {
            break;
        }
        assert!(round < 5000, "{dropped} dropped, {granted} granted: nothing is proven");
        let claim = claim("a", TTL);
        let pause = Duration::from_micros(fastrand::u64(0..400));
        if drop_after(fastrand::usize(0..8), pause, one.try_acquire(&claim, Queue::Leave)).await.is_some() {
            granted += 1;
        } else {
            dropped += 1;
        }
        // The other one could write nothing if a transaction were open.
        let writes = take(&other, &self::claim("other", TTL)).await;
        other.release(&writes).await.unwrap();
        one.abandon(&claim).await.unwrap();
        assert!(!is_held(&other, "a").await, "round {round}: a dropped attempt still holds the lock");
    }
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 1);
}

#[tokio::test]
async fn a_dropped_release_or_renewal_does_not_jam_the_connection() {
    let store = Store::on_real_time();
    let one = store.open().await;
    for _ in 0..50 {
        let claim = claim("a", TTL);
        let hold = take(&one, &claim).await;
        let pause = Duration::from_micros(fastrand::u64(0..300));
        drop_after(fastrand::usize(0..4), pause, one.renew(&[&hold])).await;
        drop_after(fastrand::usize(0..4), pause, one.release(&hold)).await;
        one.abandon(&claim).await.unwrap();
    }
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
}

#[tokio::test]
async fn an_abandon_from_elsewhere_comes_after_the_attempt_it_ends() {
    let store = Store::on_real_time();
    let one = Arc::new(store.open().await);
    let warm = take(&*one, &claim("warm", TTL)).await;
    one.release(&warm).await.unwrap();
    for _ in 0..50 {
        let claim = claim("a", TTL);
        drop_after(1, Duration::ZERO, one.try_acquire(&claim, Queue::Leave)).await;
        let (there, abandoned) = (one.clone(), claim.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(there.abandon(&abandoned)).unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
    }
}

/// As of a call that blocks its thread. An abandon over another connection could come before the attempt.
#[tokio::test]
async fn an_abandon_of_a_claim_without_an_origin_comes_after_the_attempt_it_ends() {
    let store = Store::on_real_time();
    let one = store.open().await;
    take(&one, &claim("warm", TTL)).await;
    let mut writer = store.connect().await;
    for round in 0..20 {
        let claim = Arc::new(Claim::clone(&claim("a", TTL)).with(|claim| claim.origin = None));
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
        // It has begun when it is dropped, and waits for the other writer.
        let begun = tokio::time::timeout(Duration::from_millis(20), one.try_acquire(&claim, Queue::Leave)).await;
        begun.expect_err("it did not wait: nothing is proven");
        let ends = async {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
            sqlx::raw_sql("COMMIT").execute(&mut writer).await.unwrap();
        };
        let (abandoned, ()) = tokio::join!(one.abandon(&claim), ends);
        abandoned.unwrap();
        // After the attempt, on its connection.
        assert!(!is_held(&one, "a").await, "round {round}: a dropped attempt still holds the lock");
    }
}
