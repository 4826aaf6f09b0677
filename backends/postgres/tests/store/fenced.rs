//! Writes that carry a token.

use dlock::{ErrorKind, Fence};
use dlock_postgres::fenced;
use sqlx::Connection;

use crate::kit::{Database, key};

row_cases! {
    fenced_writes_refuse_older_tokens
    a_token_that_is_committed_meanwhile_is_seen
}

fn fence(database: &Database, text: &str, token: u64) -> Fence {
    Fence::from_parts(key(database, text), Some(token)).unwrap()
}

async fn fenced_writes_refuse_older_tokens(database: Database) {
    let mut conn = database.connect().await;
    let early = Fence::from_parts(key(&database, "a"), Some(1)).unwrap();
    let error = fenced::admit(&mut conn, &early, "stock").await.unwrap_err();
    assert!(error.to_string().contains("dlock::fenced::postgres::prepare"), "{error}");
    fenced::prepare(&mut conn).await.unwrap();
    fenced::prepare(&mut conn).await.unwrap();
    let fence = |text, token| fence(&database, text, token);
    for token in [5, 5, 7, 7] {
        let mut transaction = conn.begin().await.unwrap();
        fenced::admit(&mut transaction, &fence("a", token), "stock").await.unwrap();
        transaction.commit().await.unwrap();
    }
    let error = fenced::admit(&mut conn, &fence("a", 6), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 7 }), "{error}");
    let error = fenced::admit(&mut conn, &fence("b", 9), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceInvalid), "{error}");
    fenced::admit(&mut conn, &fence("a", 7), "stock").await.unwrap();
    for other in ["STOCK", "stock ", "st\u{f6}ck"] {
        fenced::admit(&mut conn, &fence("b", 1), other).await.unwrap();
    }
    let error = fenced::admit(&mut conn, &fence("a", 7), &"x".repeat(513)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");

    // A token that is rolled back was not seen.
    let mut transaction = conn.begin().await.unwrap();
    fenced::admit(&mut transaction, &fence("a", 20), "stock").await.unwrap();
    transaction.rollback().await.unwrap();
    fenced::admit(&mut conn, &fence("a", 9), "stock").await.unwrap();
}

async fn a_token_that_is_committed_meanwhile_is_seen(database: Database) {
    let mut conn = database.connect().await;
    fenced::prepare(&mut conn).await.unwrap();
    let fence = |token| fence(&database, "a", token);
    fenced::admit(&mut conn, &fence(6), "stock").await.unwrap();
    let mut transaction = conn.begin().await.unwrap();
    sqlx::query("SELECT token FROM dlock_fenced").fetch_all(&mut *transaction).await.unwrap();
    fenced::admit(&mut database.connect().await, &fence(8), "stock").await.unwrap();
    let error = fenced::admit(&mut transaction, &fence(7), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 8 }), "{error}");
    transaction.rollback().await.unwrap();

    // A snapshot that is older than the token cannot judge it, and the server says so.
    let mut transaction = conn.begin().await.unwrap();
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *transaction).await.unwrap();
    sqlx::query("SELECT token FROM dlock_fenced").fetch_all(&mut *transaction).await.unwrap();
    fenced::admit(&mut database.connect().await, &fence(10), "stock").await.unwrap();
    let error = fenced::admit(&mut transaction, &fence(9), "stock").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("40001")), "{error}");
    transaction.rollback().await.unwrap();
}
