//! Writes that carry a token.

use dlock::fenced::sqlite as fenced;
use dlock::{ErrorKind, Fence};
use dlock_testkit::holds::key;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

#[tokio::test]
async fn fenced_writes_refuse_older_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    let fence = |text, token| Fence::from_parts(key(text), Some(token)).unwrap();
    let error = fenced::admit(&mut conn, &fence("a", 5), "stock").await.unwrap_err();
    assert!(error.to_string().contains("call `dlock::fenced::sqlite::prepare` once"), "{error}");
    fenced::prepare(&mut conn).await.unwrap();
    fenced::prepare(&mut conn).await.unwrap();
    for token in [5, 5, 7, 7] {
        let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
        fenced::admit(&mut transaction, &fence("a", token), "stock").await.unwrap();
        transaction.commit().await.unwrap();
    }
    let error = fenced::admit(&mut conn, &fence("a", 6), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 7 }), "{error}");
    let error = fenced::admit(&mut conn, &fence("b", 9), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceInvalid), "{error}");
    fenced::admit(&mut conn, &fence("b", 1), "STOCK").await.unwrap();
    for bad in ["", &"x".repeat(513)] {
        let error = fenced::admit(&mut conn, &fence("a", 7), bad).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    }
    let error = fenced::admit(&mut conn, &fence("a", u64::MAX), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceInvalid), "{error}");

    // A token that is rolled back was not seen.
    let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
    fenced::admit(&mut transaction, &fence("a", 20), "stock").await.unwrap();
    transaction.rollback().await.unwrap();
    fenced::admit(&mut conn, &fence("a", 7), "stock").await.unwrap();
}
