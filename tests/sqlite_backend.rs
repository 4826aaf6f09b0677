//! The SQLite backend on real files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests stop at the first surprise too"
)]

mod holds;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dlock::backends::sqlite::Sqlite;
use dlock::fenced::sqlite as fenced;
use dlock::{Attempt, Backend, Claim, Clock, ErrorKind, Fence, Hold, Key, LockKey, Released, Stand, Standing};
use dlock_testkit::drop_after;
use holds::{confirm, take, token};
use sqlx::{ConnectOptions, Connection};

const TTL: Duration = Duration::from_secs(30);

struct Store {
    folder: tempfile::TempDir,
    clock: Clock,
}

impl Store {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Clock::system() }
    }

    fn with_clock(clock: Clock) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("locks.db")
    }

    /// Another backend value on the same file, as another process would have.
    async fn open(&self) -> Sqlite {
        Sqlite::open(&url(&self.path()), &self.clock).await.unwrap()
    }

    /// Asks the file itself, over a connection of the test's own.
    async fn ask(&self, sql: &'static str) -> i64 {
        let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(self.path()).connect().await.unwrap();
        let (answer,) = sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        answer
    }
}

fn url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

fn key(text: &str) -> LockKey {
    LockKey::new("test", Key::new().value(text)).unwrap()
}

fn claim(text: &str, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(key(text), ttl, "site").unwrap())
}

async fn is_held(store: &Sqlite, text: &str) -> bool {
    let probe = claim(text, TTL);
    match store.try_acquire(&probe, Stand::No).await.unwrap() {
        Attempt::Acquired(hold) => {
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            false
        }
        Attempt::Contended(_) => true,
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}

#[tokio::test]
async fn a_lock_is_taken_renewed_and_freed() {
    let store = Store::new();
    let one = store.open().await;
    let claim = claim("a", TTL);
    let before = store.clock.now();
    let hold = take(&one, &claim).await;
    assert!(hold.validity.from >= before && hold.validity.from <= store.clock.now());
    assert_eq!(hold.validity.granted, TTL);
    assert_eq!(one.holder(&claim.key).await.unwrap().unwrap(), claim.note);
    let Standing::Renewed(validity) = confirm(&one, &hold).await else { panic!("lost") };
    assert!(validity.from > hold.validity.from);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(one.holder(&claim.key).await.unwrap(), None);
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0, "a free lock has no row");
}

#[tokio::test]
async fn a_second_backend_is_refused_until_the_release() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &claim("a", TTL)).await;
    let second = claim("a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, Stand::No).await.unwrap() else { panic!("two holders") };
    assert!(wake.signal.is_none());
    let left = wake.lease_left.unwrap();
    assert!(left <= TTL && left > TTL - Duration::from_secs(5), "{left:?}");
    one.release(&hold).await.unwrap();
    assert!(token(&take(&other, &second).await) > token(&hold));
}

#[tokio::test]
async fn its_own_lock_is_armed_anew_and_keeps_its_token() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let claim = claim("a", TTL);
    let first = take(&one, &claim).await;
    store.clock.advance(TTL / 2);
    let again = take(&one, &claim).await;
    assert_eq!(token(&again), token(&first));
    assert_eq!(again.validity.from, store.clock.now());
    store.clock.advance(TTL - Duration::from_millis(1));
    assert!(is_held(&store.open().await, "a").await, "the second request did not prolong the lease");
}

#[tokio::test]
async fn a_lease_ends_at_its_ttl_and_not_earlier() {
    let store = Store::with_clock(Clock::manual());
    let (one, other) = (store.open().await, store.open().await);
    let claim = claim("a", TTL);
    let hold = take(&one, &claim).await;
    store.clock.advance(TTL - Duration::from_nanos(1));
    assert!(is_held(&other, "a").await);
    store.clock.advance(Duration::from_nanos(1));
    assert_eq!(other.holder(&claim.key).await.unwrap(), None);
    let next = take(&other, &self::claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(is_held(&one, "a").await, "the late release freed somebody else's lock");
}

#[tokio::test]
async fn after_its_expiry_a_lock_is_lost_though_nobody_took_it() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    store.clock.advance(TTL);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
}

#[tokio::test]
async fn a_renewal_never_creates() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    one.release(&hold).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
}

#[tokio::test]
async fn many_holds_are_renewed_at_once_each_by_its_own_ttl() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let mut holds = Vec::new();
    for (text, seconds) in [("q\"uote", 10), ("back\\slash", 20), ("gone", 30), ("plain", 40)] {
        holds.push(take(&one, &claim(text, Duration::from_secs(seconds))).await);
    }
    one.release(&holds[2]).await.unwrap();
    store.clock.advance(Duration::from_secs(9));
    let standings = one.renew(&holds.iter().collect::<Vec<_>>()).await;
    let lost: Vec<bool> = standings.iter().map(|standing| *standing.as_ref().unwrap() == Standing::Lost).collect();
    assert_eq!(lost, [false, false, true, false]);
    store.clock.advance(Duration::from_secs(10));
    assert!(!is_held(&one, "q\"uote").await);
    assert!(is_held(&one, "back\\slash").await);
    assert!(one.renew(&[]).await.is_empty());
}

#[tokio::test]
async fn a_lock_from_before_a_restart_of_the_host_is_free() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
    sqlx::query("UPDATE dlock_locks SET boot = 'another'").execute(&mut conn).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(!is_held(&one, "a").await);
}

#[tokio::test]
async fn tokens_rise_over_release_expiry_reopening_and_a_deleted_file() {
    let store = Store::new();
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
async fn abandon_frees_and_leaves_no_row_twice() {
    let store = Store::new();
    let one = store.open().await;
    let claim = claim("a", TTL);
    drop(take(&one, &claim).await);
    one.abandon(&claim).await.unwrap();
    one.abandon(&claim).await.unwrap();
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
    let other = take(&one, &self::claim("a", TTL)).await;
    one.abandon(&claim).await.unwrap();
    assert!(matches!(confirm(&one, &other).await, Standing::Renewed(_)), "it freed somebody else's lock");
}

#[tokio::test]
async fn a_dropped_attempt_leaves_no_transaction_and_no_row() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    take(&one, &claim("warm", TTL)).await;
    let (mut dropped, mut granted) = (0, 0);
    for round in 0..200 {
        let claim = claim("a", TTL);
        let pause = Duration::from_micros(fastrand::u64(0..400));
        if drop_after(fastrand::usize(0..8), pause, one.try_acquire(&claim, Stand::No)).await.is_some() {
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
    assert!(dropped > 10 && granted > 10, "{dropped} dropped, {granted} granted: nothing was proven");
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 1);
}

#[tokio::test]
async fn a_dropped_release_or_renewal_does_not_jam_the_connection() {
    let store = Store::new();
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
    let store = Store::new();
    let one = Arc::new(store.open().await);
    take(&*one, &claim("warm", TTL)).await;
    for _ in 0..50 {
        let claim = claim("a", TTL);
        drop_after(1, Duration::ZERO, one.try_acquire(&claim, Stand::No)).await;
        let (there, abandoned) = (one.clone(), claim.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(there.abandon(&abandoned)).unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(store.ask("SELECT count(*) FROM dlock_locks WHERE k <> 'dl1:test:<warm>'").await, 0);
    }
}

#[tokio::test]
async fn keys_are_compared_byte_for_byte() {
    let store = Store::new();
    let one = store.open().await;
    let long = "x".repeat(3000);
    for text in ["a", "A", "a ", "é", "e\u{301}", "%", "'; DROP TABLE dlock_locks; --", &long, &format!("{long}y")] {
        take(&one, &claim(text, TTL)).await;
    }
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_backends_never_hold_at_once() {
    let store = Store::new();
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (one, inside) = (store.open().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let (mut wins, mut tokens) = (0, Vec::new());
            while wins < 25 {
                let claim = claim("a", TTL);
                match one.try_acquire(&claim, Stand::No).await.unwrap() {
                    Attempt::Acquired(hold) => {
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        tokens.push(token(&hold));
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        one.release(&hold).await.unwrap();
                        wins += 1;
                    }
                    Attempt::Contended(_) => tokio::time::sleep(Duration::from_micros(500)).await,
                    Attempt::AlreadyRun => panic!("a claim without a period"),
                }
            }
            tokens
        }));
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(task.await.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 100, "a token was given twice");
}

#[tokio::test]
async fn a_file_held_by_a_writer_is_an_outage_and_renewals_recover() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut writer = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
    let transaction = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = one.try_acquire(&claim("b", TTL), Stand::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let error = one.renew(&[&hold]).await.remove(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage), "unknown is not lost: {error}");
    transaction.rollback().await.unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn a_crowd_of_callers_does_not_hold_up_a_renewal() {
    let store = Store::new();
    let one = Arc::new(store.open().await);
    let hold = take(&*one, &claim("a", TTL)).await;
    let crowd: Vec<_> = (0..2000)
        .map(|number| {
            let (one, claim) = (one.clone(), claim(&format!("crowd {number}"), TTL));
            tokio::spawn(async move { one.try_acquire(&claim, Stand::No).await.map(drop) })
        })
        .collect();
    tokio::task::yield_now().await;
    let started = std::time::Instant::now();
    confirm(&*one, &hold).await;
    let renewal = started.elapsed();
    let mut failed = 0;
    for caller in crowd {
        failed += u32::from(caller.await.unwrap().is_err());
    }
    let all = started.elapsed();
    assert_eq!(failed, 0);
    assert!(renewal < all / 2, "the renewal took {renewal:?} of {all:?}");
}

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
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&foreign).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    sqlx::query("CREATE TABLE customers (name TEXT)").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let error = refused(&url(&foreign)).await;
    assert!(matches!(error.kind(), ErrorKind::SchemaMismatch) && error.to_string().contains("of their own"), "{error}");

    drop(store.open().await);
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
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
async fn a_wrong_wall_clock_changes_nothing() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let ahead = Sqlite::open(&url(&store.path()), &Clock::with_wall_skew(3_600_000)).await.unwrap();
    assert!(is_held(&ahead, "a").await);
    assert!(matches!(confirm(&ahead, &hold).await, Standing::Renewed(_)));
}

#[tokio::test]
async fn an_exhausted_counter_is_an_error_and_no_grant() {
    let store = Store::new();
    let one = store.open().await;
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
    sqlx::query("UPDATE dlock_fence SET token = 9007199254740991, bound = 9007199254740991")
        .execute(&mut conn)
        .await
        .unwrap();
    let error = one.try_acquire(&claim("a", TTL), Stand::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceExhausted), "{error}");
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
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
async fn fenced_writes_refuse_older_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    fenced::prepare(&mut conn).await.unwrap();
    fenced::prepare(&mut conn).await.unwrap();
    let fence = |text, token| Fence::from_parts(key(text), Some(token)).unwrap();
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

    // What is rolled back was not seen.
    let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
    fenced::admit(&mut transaction, &fence("a", 20), "stock").await.unwrap();
    transaction.rollback().await.unwrap();
    fenced::admit(&mut conn, &fence("a", 7), "stock").await.unwrap();
}

#[tokio::test]
async fn at_its_bound_the_counter_goes_on_under_a_higher_one() {
    let store = Store::new();
    let one = store.open().await;
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
    sqlx::query("UPDATE dlock_fence SET token = bound").execute(&mut conn).await.unwrap();
    let bound = store.ask("SELECT bound FROM dlock_fence").await;
    let hold = take(&one, &claim("a", TTL)).await;
    assert_eq!(i64::try_from(token(&hold)).unwrap(), bound + 1);
    assert!(store.ask("SELECT bound FROM dlock_fence").await > bound + 1000);
    take(&one, &claim("b", TTL)).await;
}

#[tokio::test]
async fn after_a_restart_of_the_host_no_token_comes_again() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let bound = store.ask("SELECT bound FROM dlock_fence").await;
    one.close().await;
    // What a power failure may leave: an older counter, with the bound that was on the disk.
    let mut conn = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
    sqlx::query("UPDATE dlock_fence SET token = token - 1, boot = 'another'").execute(&mut conn).await.unwrap();
    sqlx::query("UPDATE dlock_locks SET boot = 'another'").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let next = take(&store.open().await, &claim("a", TTL)).await;
    assert!(token(&next) > token(&hold) && i64::try_from(token(&next)).unwrap() > bound);
}
