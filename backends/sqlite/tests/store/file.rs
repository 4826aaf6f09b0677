//! The file: its users, its form, and its replacement.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dlock::ErrorKind;
use dlock::backends::sqlite::Sqlite;
use dlock_contract::{Backend, Queue, Standing};
use dlock_testkit::holds::{claim, confirm, take};
use dlock_testkit::{a_closed_store_opens_nothing, wait_until};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::store::{Store, TTL, is_held, url};

#[tokio::test]
async fn a_path_that_cannot_be_a_lock_file_is_refused_with_a_reason() {
    let store = Store::on_real_time();
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
    assert!(
        matches!(error.kind(), ErrorKind::SchemaMismatch) && error.to_string().contains("their own file"),
        "{error}"
    );

    drop(store.open().await);
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_schema SET version = 4").execute(&mut conn).await.unwrap();
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
    let store = Store::on_real_time();
    let one = store.open().await;
    take(&one, &claim("a", TTL)).await;
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let mode = std::fs::metadata(store.folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_file_system_that_is_not_known_to_be_local_is_refused_by_name() {
    let store = Store::on_real_time();
    let error = Sqlite::open("sqlite:///proc/locks.db", &store.clock).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("is on proc") && error.to_string().contains("?network=allow"), "{error}");
    let error = Sqlite::open("sqlite:///proc/locks.db?network=allow", &store.clock).await.unwrap_err();
    assert!(error.to_string().contains("cannot be created"), "{error}");
}

#[tokio::test]
async fn a_file_that_others_may_write_is_refused_unless_the_url_allows_it() {
    let store = Store::on_real_time();
    let folder = store.folder.path();

    let writable = folder.join("writable.db");
    for bits in [0o666, 0o660] {
        std::fs::write(&writable, "").unwrap();
        mode(&writable, bits);
        refused(&store, &writable, "may be written by other users").await;
        std::fs::remove_file(&writable).unwrap();
    }
    // A link to such a file is as good as the file.
    let (target, link) = (folder.join("target"), folder.join("link.db"));
    std::fs::write(&target, "").unwrap();
    mode(&target, 0o666);
    std::os::unix::fs::symlink(&target, &link).unwrap();
    refused(&store, &link, "may be written by other users").await;
    // Only we can write the file, but others can write the file beside it.
    store.open().await.close().await;
    let companion = folder.join("locks.db-wal");
    std::fs::write(&companion, "").unwrap();
    mode(&companion, 0o666);
    refused(&store, &store.path(), "-wal may be written by other users").await;
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_of_another_user_is_refused_unless_the_url_allows_it() {
    crate::users::as_several("file::a_file_of_another_user_is_refused_unless_the_url_allows_it", give_files_away);
}

#[cfg(target_os = "linux")]
#[tokio::main(flavor = "current_thread")]
async fn give_files_away() {
    let store = Store::on_real_time();
    let foreign = store.folder.path().join("foreign.db");
    std::fs::write(&foreign, "").unwrap();
    mode(&foreign, 0o600);
    std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
    refused(&store, &foreign, "belongs to another user").await;
    let (target, link) = (store.folder.path().join("mine"), store.folder.path().join("theirs.db"));
    std::fs::write(&target, "").unwrap();
    mode(&target, 0o600);
    std::os::unix::fs::symlink(&target, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
    refused(&store, &link, "link that another user made").await;
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// The file is refused for this reason, and opened if the URL allows it.
async fn refused(store: &Store, path: &Path, why: &str) {
    let error = Sqlite::open(&url(path), &store.clock).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    assert!(error.to_string().contains(why) && error.to_string().contains("?shared=allow"), "{error}");
    let shared = Sqlite::open(&format!("{}?shared=allow", url(path)), &store.clock).await.unwrap();
    shared.close().await;
}

#[tokio::test]
async fn a_link_to_nothing_is_refused_and_nothing_is_made_there() {
    let store = Store::on_real_time();
    let (target, link) = (store.folder.path().join("target"), store.folder.path().join("link.db"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let error = Sqlite::open(&url(&link), &store.clock).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    assert!(!target.exists());
}

#[tokio::test]
async fn many_openers_of_a_new_file_agree() {
    let store = Store::on_real_time();
    let opened = futures::future::join_all((0..8).map(|_| store.open())).await;
    assert_eq!(opened.len(), 8);
    take(&opened[0], &claim("a", TTL)).await;
    for other in &opened[1..] {
        assert!(is_held(other, "a").await);
    }
}

#[tokio::test]
async fn a_replaced_file_is_noticed_and_its_holds_are_lost() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    std::fs::remove_file(store.path()).unwrap();
    let _ = std::fs::remove_file(store.folder.path().join("locks.db-wal"));
    let _ = std::fs::remove_file(store.folder.path().join("locks.db-shm"));
    let error = other.try_acquire(&claim("warm", TTL), Queue::Leave).await.err();
    assert!(error.is_none(), "its first connection is opened only now: {error:?}");
    let error = one.try_acquire(&claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("replaced"), "{error}");
    take(&one, &claim("b", TTL)).await;
    assert!(one.renew(&[&hold]).await.remove(0).is_err(), "the renewal went to the deleted file");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(is_held(&other, "b").await);
}

/// The index tells that there was a log, so a process that opens the file then is refused, and grants nothing.
#[tokio::test]
async fn without_its_log_a_file_is_refused_to_others_and_its_holds_go_on() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    std::fs::remove_file(store.folder.path().join("locks.db-wal")).unwrap();
    let error = Sqlite::open(&store.url(), &store.clock).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    one.close().await;
    assert!(is_held(&store.open().await, "a").await, "the last one to close writes the file");
}

#[tokio::test]
async fn a_file_held_by_a_writer_is_an_outage_and_renewals_recover() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut writer = store.connect().await;
    let transaction = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = one.try_acquire(&claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let error = one.renew(&[&hold]).await.remove(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage), "unknown is not lost: {error}");
    transaction.rollback().await.unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
}

/// As sqlx writes it.
#[tokio::test]
async fn a_url_of_sqlx_opens_the_same_file() {
    let store = crate::store::Store::on_real_time();
    let registry = dlock::Registry::new();
    registry.connect("ours", &store.url()).await.unwrap();
    let theirs = format!("sqlite:{}?mode=rwc", store.path().display());
    registry.connect("theirs", &theirs).await.unwrap();
    let _held = registry.lock("a").backend("ours").acquire().await.unwrap();
    let error = registry.lock("a").backend("theirs").try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), dlock::ErrorKind::Busy, "{error}");
}

#[tokio::test]
async fn a_closed_store_opens_the_file_no_more() {
    let store = Store::on_real_time();
    let (opened, folder) = (store.open().await, store.folder.path().canonicalize().unwrap());
    let is_open = || {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| link.unwrap().path().read_link().ok());
        links.into_iter().any(|path| path.starts_with(&folder))
    };
    let hold = take(&opened, &claim("open", TTL)).await;
    assert!(is_open(), "this look sees nothing");
    opened.release(&hold).await.unwrap();
    a_closed_store_opens_nothing(&opened, &[], &claim("closed", TTL)).await;
    wait_until("the file to be closed", async || !is_open()).await.unwrap();
    // A late opening would be seen.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!is_open());
}
