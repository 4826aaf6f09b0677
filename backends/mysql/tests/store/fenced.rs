//! Writes that carry a token.

use dlock::fenced::mysql as fenced;
use dlock::{ErrorKind, Fence};
use sqlx::Connection;

use crate::named_kit::key;
use crate::server::Database;

named_cases! {
    on both:
    fenced_writes_refuse_older_tokens
}

async fn fenced_writes_refuse_older_tokens(database: Database) {
    let mut conn = database.connect().await;
    let early = Fence::from_parts(key(&database, "a"), Some(1)).unwrap();
    let error = fenced::admit(&mut conn, &early, "stock").await.unwrap_err();
    assert!(error.to_string().contains("dlock::fenced::mysql::prepare"), "{error}");
    fenced::prepare(&mut conn).await.unwrap();
    fenced::prepare(&mut conn).await.unwrap();
    let fence = |text, token| Fence::from_parts(key(&database, text), Some(token)).unwrap();
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
    fenced::admit(&mut conn, &fence("b", 1), "STOCK").await.unwrap();
    let error = fenced::admit(&mut conn, &fence("a", 7), &"x".repeat(513)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");

    // A newer token that another transaction commits after this one's snapshot was taken must be seen.
    let mut transaction = conn.begin().await.unwrap();
    sqlx::query("SELECT token FROM dlock_fenced").fetch_all(&mut *transaction).await.unwrap();
    fenced::admit(&mut database.connect().await, &fence("a", 8), "stock").await.unwrap();
    let error = fenced::admit(&mut transaction, &fence("a", 7), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 8 }), "{error}");
    transaction.rollback().await.unwrap();

    // A token that is rolled back was not seen.
    let mut transaction = conn.begin().await.unwrap();
    fenced::admit(&mut transaction, &fence("a", 20), "stock").await.unwrap();
    transaction.rollback().await.unwrap();
    fenced::admit(&mut conn, &fence("a", 9), "stock").await.unwrap();
}
