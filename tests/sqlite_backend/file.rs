//! The file: who may use it, what it must be, and what happens when it is replaced.

use std::os::unix::fs::PermissionsExt;

use dlock::backends::sqlite::Sqlite;
use dlock::{Backend, ErrorKind, Stand, Standing};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::holds::{confirm, take};
use crate::store::{Store, TTL, claim, is_held, url};

#[tokio::test]
async fn what_cannot_be_a_lock_file_is_refused_with_a_reason() {
    let store = Store::new();
    let folder = store.folder.path();
    let refused = async |url: &str| Sqlite::open(url, &store.clock).await.unwrap_err();

    let error = refused("sqlite://:memory:").await;
    assert!(error.to_string().contains("memory://"), "{error}");
    let error = refused(&url(&folder.join("missing/locks.db"))).await;
    assert!(error.to_string().contains("folder does not exist"), "{error}");
    let error = refused(&url(folder)).await;
    assert!(error.to_string().contains("not a plain file"), "{error}");

    let text = folder.join("text.db");
    std::fs::write(&text, "this is a letter and not a database. ".repeat(100)).unwrap();
    assert!(matches!(refused(&url(&text)).await.kind(), ErrorKind::SchemaMismatch));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("this is a letter"));

    let foreign = folder.join("foreign.db");
    let options = SqliteConnectOptions::new().filename(&foreign).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    sqlx::query("CREATE TABLE customers (name TEXT)").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let error = refused(&url(&foreign)).await;
    assert!(matches!(error.kind(), ErrorKind::SchemaMismatch) && error.to_string().contains("of their own"), "{error}");

    drop(store.open().await);
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_schema SET version = 3").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    assert!(matches!(refused(&url(&store.path())).await.kind(), ErrorKind::SchemaMismatch));

    let frozen = folder.join("frozen.db");
    drop(Sqlite::open(&url(&frozen), &store.clock).await.unwrap());
    std::fs::set_permissions(&frozen, PermissionsExt::from_mode(0o400)).unwrap();
    let error = refused(&url(&frozen)).await;
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied) && error.to_string().contains("read-only"), "{error}");
}

#[tokio::test]
async fn the_file_and_its_companions_are_for_the_owner_only() {
    let store = Store::new();
    let one = store.open().await;
    take(&one, &claim("a", TTL)).await;
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let mode = std::fs::metadata(store.folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn many_openers_of_a_new_file_agree() {
    let store = Store::new();
    let opened = futures::future::join_all((0..8).map(|_| store.open())).await;
    assert_eq!(opened.len(), 8);
    take(&opened[0], &claim("a", TTL)).await;
    for other in &opened[1..] {
        assert!(is_held(other, "a").await);
    }
}

#[tokio::test]
async fn a_replaced_file_is_noticed_and_its_holds_are_lost() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    std::fs::remove_file(store.path()).unwrap();
    let _ = std::fs::remove_file(store.folder.path().join("locks.db-wal"));
    let _ = std::fs::remove_file(store.folder.path().join("locks.db-shm"));
    let error = other.try_acquire(&claim("warm", TTL), Stand::No).await.err();
    assert!(error.is_none(), "its first connection is opened only now: {error:?}");
    let error = one.try_acquire(&claim("b", TTL), Stand::No).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("replaced"), "{error}");
    take(&one, &claim("b", TTL)).await;
    assert!(one.renew(&[&hold]).await.remove(0).is_err(), "the renewal went to the deleted file");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(is_held(&other, "b").await);
}

#[tokio::test]
async fn a_file_held_by_a_writer_is_an_outage_and_renewals_recover() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut writer = store.connect().await;
    let transaction = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = one.try_acquire(&claim("b", TTL), Stand::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let error = one.renew(&[&hold]).await.remove(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage), "unknown is not lost: {error}");
    transaction.rollback().await.unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
}
