//! The disk is full while transactions of row locks are open. A renewal must say what is so: held as long as the server keeps the
//! row locked, and lost as soon as it does not.

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Hold, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take};
use dlock_testkit::wait_until;
use sqlx::AssertSqlSafe;

use super::full_disk::{fill_disk, needs_room};
use super::kit::{Database, TTL};
use crate::row_kit::{self, ERRORS_UNDO_ALL, transaction_of};

cases_on_small_disk! {
    a_full_disk_ends_a_row_lock_only_with_its_transaction
}

async fn a_full_disk_ends_a_row_lock_only_with_its_transaction(database: Database) {
    let store = row_kit::open(&database.url()).await.unwrap();
    let claim = |text: &str| claim_on(&LockKey::new("row", Key::new().value(text)).unwrap(), TTL, |_| ());
    let idle = take(&store, &claim("idle")).await;
    let working = take(&store, &claim("working")).await;
    let failing = take(&store, &claim("failing")).await;
    fill_disk(&database).await;
    // By the hold's own session.
    assert!(is_renewed(&store, &idle).await && is_locked(&database, "idle").await);
    // By the monitor, because the body has the connection.
    let mut transaction = transaction_of(&working).unwrap();
    let conn = transaction.conn().await.unwrap();
    assert!(is_renewed(&store, &working).await && is_locked(&database, "working").await);
    drop(conn);
    drop(transaction);
    store.settle().unwrap().settle(&working).await.unwrap();

    // A statement of the body finds no room. One server undoes that statement, and another the whole transaction.
    let mut transaction = transaction_of(&failing).unwrap();
    let mut conn = transaction.conn().await.unwrap();
    let error = sqlx::raw_sql(AssertSqlSafe(needs_room())).execute(&mut *conn).await.unwrap_err().to_string();
    assert!(error.contains("No space left") || error.contains("is full"), "{error}");
    if ERRORS_UNDO_ALL {
        // PostgreSQL tells the error before it undoes the transaction.
        wait_until("the row is free", async || !is_locked(&database, "failing").await).await.unwrap();
    }
    let is_kept = is_locked(&database, "failing").await;
    assert_eq!(is_kept, !ERRORS_UNDO_ALL);
    assert_eq!(is_renewed(&store, &failing).await, is_kept, "by the monitor");
    drop(conn);
    assert_eq!(is_renewed(&store, &failing).await, is_kept, "by its own session");
    drop(transaction);
    // A body that does not look at the error is told at its end.
    let settled = store.settle().unwrap().settle(&failing).await;
    assert_eq!(settled.as_ref().err().map(|error| error.kind()), ERRORS_UNDO_ALL.then_some(&ErrorKind::CommitRefused));

    // The session of a hold ends. Nothing else tells the store, and a new connection needs no room.
    assert!(database.end_sessions().await > 0);
    assert!(!is_renewed(&store, &idle).await && !is_locked(&database, "idle").await);
    assert_eq!(store.release(&idle).await.unwrap(), Released::NotOwner);

    database.change("DROP TABLE filler").await;
    for text in ["idle", "working", "failing"] {
        let hold = take(&store, &claim(text)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released, "{text}");
    }
}

async fn is_renewed(store: &impl Backend, hold: &Hold) -> bool {
    matches!(confirm(store, hold).await, Standing::Renewed(_))
}

/// Whether somebody keeps the row of a key locked. It writes nothing, so it needs no room.
async fn is_locked(database: &Database, text: &str) -> bool {
    let name = database.lines(&format!("SELECT k FROM dlock_row_keys WHERE k LIKE '%{text}%'")).await;
    let sql = format!("SELECT k FROM dlock_row_keys WHERE k = '{}' FOR UPDATE NOWAIT", name[0]);
    match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut database.connect().await).await {
        Ok(rows) => {
            assert_eq!(rows.len(), 1, "{text}");
            false
        }
        Err(error) => {
            assert!(error.to_string().to_lowercase().contains("lock"), "{text}: {error}");
            true
        }
    }
}
