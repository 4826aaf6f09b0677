//! The fencing counter, whatever happens to its file.

use std::time::Duration;

use dlock::ErrorKind;
use dlock_contract::{Backend, Hold, Queue};
use dlock_testkit::holds::{claim, take, token};
use sqlx::Connection;

use crate::store::{Store, TTL};

#[tokio::test]
async fn tokens_rise_over_release_expiry_reopening_and_a_deleted_file() {
    let store = Store::on_real_time();
    let mut last = 0;
    let mut rises = |hold: &Hold| {
        assert!(token(hold) > last, "{} after {last}", token(hold));
        last = token(hold);
    };
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    rises(&hold);
    one.release(&hold).await.unwrap();
    rises(&take(&one, &claim("a", Duration::from_millis(10))).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    rises(&take(&one, &claim("a", Duration::from_millis(10))).await);
    one.close().await;
    drop(one);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let two = store.open().await;
    rises(&take(&two, &claim("a", TTL)).await);
    two.close().await;
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let _ = std::fs::remove_file(store.folder.path().join(name));
    }
    rises(&take(&store.open().await, &claim("a", TTL)).await);
}

#[tokio::test]
async fn no_token_is_given_twice_over_a_restart_of_the_host() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let bound = store.ask("SELECT bound FROM dlock_fence").await;
    one.close().await;
    // A power failure may leave an older counter, with the bound that was on the disk.
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_fence SET token = token - 1, boot = 'another'").execute(&mut conn).await.unwrap();
    sqlx::query("UPDATE dlock_locks SET boot = 'another'").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let next = take(&store.open().await, &claim("a", TTL)).await;
    assert!(token(&next) > token(&hold) && i64::try_from(token(&next)).unwrap() > bound);
}

#[tokio::test]
async fn a_counter_at_its_bound_continues_under_a_higher_one() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_fence SET token = bound").execute(&mut conn).await.unwrap();
    let bound = store.ask("SELECT bound FROM dlock_fence").await;
    let hold = take(&one, &claim("a", TTL)).await;
    assert_eq!(i64::try_from(token(&hold)).unwrap(), bound + 1);
    assert!(store.ask("SELECT bound FROM dlock_fence").await > bound + 1000);
    take(&one, &claim("b", TTL)).await;
}

#[tokio::test]
async fn an_exhausted_counter_is_an_error_and_no_grant() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_fence SET token = 9007199254740991, bound = 9007199254740991")
        .execute(&mut conn)
        .await
        .unwrap();
    let error = one.try_acquire(&claim("a", TTL), Queue::Leave).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceExhausted), "{error}");
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
}
