//! The `GET_LOCK` backend on real servers: MariaDB and MySQL.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests stop at the first surprise too"
)]

mod holds;
#[path = "get_lock_backend/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlock::backends::get_lock::GetLock;
use dlock::fenced::mysql as fenced;
use dlock::{Attempt, Backend, Claim, Clock, ErrorKind, Fence, Hold, Key, LockKey, Released, Signal, Stand, Standing};
use dlock_testkit::{drop_after, text_of};
use holds::{confirm, take, token};
use server::{Database, Kind};
use sqlx::{AssertSqlSafe, Connection, Executor};

const TTL: Duration = Duration::from_secs(30);

/// Each case on each kind of server, in a database of its own.
macro_rules! cases {
    ($($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::run(super::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::run(super::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

cases! {
    a_lock_is_taken_renewed_and_freed
    a_second_backend_is_refused_until_the_release
    its_own_lock_is_confirmed_and_keeps_its_token
    a_killed_session_frees_its_lock_and_is_lost
    a_silent_session_ends_at_its_ttl_and_not_earlier
    a_renewal_never_creates
    tokens_rise_over_release_reopening_and_lost_rows
    abandon_frees_twice_and_touches_nobody_else
    a_dropped_attempt_holds_nothing
    a_dropped_renewal_does_not_lose_the_lock
    a_wait_ends_with_the_lock_at_the_release
    a_dropped_wait_gives_its_place_up
    a_wait_that_runs_out_asks_again
    waiters_of_two_backends_never_hold_at_once
    keys_differ_by_case_blank_and_long_suffix
    connections_are_used_again_and_never_while_they_hold
    a_wrong_table_is_refused
    a_missing_database_is_refused
    fenced_writes_refuse_older_tokens
}

async fn run<F>(kind: Kind, case: &str, body: F)
where
    F: FnOnce(Database) -> futures::future::BoxFuture<'static, ()>,
{
    body(Database::create(&kind.shared().unwrap(), case).await).await;
}

async fn open(database: &Database) -> GetLock {
    GetLock::open(&database.url(), &Clock::system()).await.unwrap()
}

fn key(database: &Database, text: &str) -> LockKey {
    LockKey::new(&database.name, Key::new().value(text)).unwrap()
}

fn claim(database: &Database, text: &str, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim::new(key(database, text), ttl, "site").unwrap())
}

/// Takes the lock as soon as the server gives it, and says how long that took.
async fn take_soon(store: &GetLock, claim: &Arc<Claim>) -> (Hold, Duration) {
    let started = Instant::now();
    loop {
        if let Attempt::Acquired(hold) = store.try_acquire(claim, Stand::No).await.unwrap() {
            return (hold, started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(10), "the lock was never freed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn until(wait: Duration) -> Stand {
    Stand::Until(Clock::system().now().after(wait))
}

/// The session that holds the lock, asked of the server by another way than the backend's.
async fn session_of(database: &Database, text: &str) -> Option<u64> {
    let mut conn = database.connect().await;
    let sql = "SELECT CAST(IS_USED_LOCK(CONCAT('d1', SUBSTR(SHA2(?, 256), 1, 62))) AS UNSIGNED)";
    let (id,) = sqlx::query_as(sql).bind(key(database, text).as_str()).fetch_one(&mut conn).await.unwrap();
    id
}

async fn a_lock_is_taken_renewed_and_freed(database: Database) {
    let one = open(&database).await;
    let claim = claim(&database, "a", TTL);
    let before = Clock::system().now();
    let hold = take(&one, &claim).await;
    assert!(hold.validity.from >= before && hold.validity.from <= Clock::system().now());
    assert!(session_of(&database, "a").await.is_some());
    assert_eq!(one.holder(&claim.key).await.unwrap().unwrap(), claim.note);
    let Standing::Renewed(validity) = confirm(&one, &hold).await else { panic!("lost") };
    assert!(validity.from > hold.validity.from && validity.granted == TTL);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(session_of(&database, "a").await, None);
    assert_eq!(one.holder(&claim.key).await.unwrap(), None, "the note of a past holder is nobody's");
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
}

async fn a_second_backend_is_refused_until_the_release(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    let second = claim(&database, "a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, Stand::No).await.unwrap() else { panic!("two holders") };
    assert!(wake.signal.is_none(), "an attempt that does not wait must not leave a waiter");
    one.release(&hold).await.unwrap();
    assert!(token(&take(&other, &second).await) > token(&hold));
}

async fn its_own_lock_is_confirmed_and_keeps_its_token(database: Database) {
    let one = open(&database).await;
    let claim = claim(&database, "a", TTL);
    let first = take(&one, &claim).await;
    let again = take(&one, &claim).await;
    assert_eq!(token(&again), token(&first));
    assert!(again.validity.from > first.validity.from);
    drop(first);
    assert!(matches!(confirm(&one, &again).await, Standing::Renewed(_)), "one answer's drop ended the other's lock");
    assert_eq!(one.release(&again).await.unwrap(), Released::Released);
}

async fn a_killed_session_frees_its_lock_and_is_lost(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    database.kill(session_of(&database, "a").await.unwrap()).await;
    let (next, _) = take_soon(&other, &claim(&database, "a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)), "the late release freed another's lock");
}

async fn a_silent_session_ends_at_its_ttl_and_not_earlier(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &claim(&database, "a", Duration::from_secs(1))).await;
    let (_, after) = take_soon(&other, &claim(&database, "a", TTL)).await;
    assert!(after > Duration::from_millis(950), "the lock was granted again after {after:?}");
    let bound = Duration::from_secs(1) + one.capabilities().takeover_delay;
    assert!(after < bound, "the lock was granted again only after {after:?}");
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
}

async fn a_renewal_never_creates(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    one.release(&hold).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(session_of(&database, "a").await, None);
}

async fn tokens_rise_over_release_reopening_and_lost_rows(database: Database) {
    let mut last = 0;
    for round in 0..6 {
        let one = open(&database).await;
        for _ in 0..3 {
            let hold = take(&one, &claim(&database, "a", TTL)).await;
            assert!(token(&hold) > last && token(&hold) < 1 << 53, "{} after {last}", token(&hold));
            last = token(&hold);
            one.release(&hold).await.unwrap();
        }
        let mut conn = database.connect().await;
        if round == 2 {
            conn.execute("DELETE FROM dlock_named").await.unwrap();
        }
        if round == 3 {
            // A server clock that was set back.
            conn.execute("UPDATE dlock_named SET token = token + 60000000").await.unwrap();
        }
        conn.execute("SET SESSION time_zone = '-11:00'").await.unwrap();
    }
}

async fn abandon_frees_twice_and_touches_nobody_else(database: Database) {
    let one = open(&database).await;
    let claim = claim(&database, "a", TTL);
    let hold = take(&one, &claim).await;
    one.abandon(&claim).await.unwrap();
    one.abandon(&claim).await.unwrap();
    assert_eq!(session_of(&database, "a").await, None);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    let other = take(&one, &self::claim(&database, "a", TTL)).await;
    one.abandon(&claim).await.unwrap();
    assert!(matches!(confirm(&one, &other).await, Standing::Renewed(_)));
}

async fn a_dropped_attempt_holds_nothing(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let (mut dropped, mut granted, mut slowest) = (0, 0, Duration::ZERO);
    for round in 0..200 {
        let claim = claim(&database, "a", TTL);
        // Slow and busy machines differ by much: half of the attempts get time to end.
        let pause = Duration::from_micros(fastrand::u64(0..2000)) * (1 + round % 4);
        let stand = if round % 2 == 0 { Stand::No } else { until(TTL) };
        match drop_after(fastrand::usize(0..20), pause, one.try_acquire(&claim, stand)).await {
            Some(_) => granted += 1,
            None => dropped += 1,
        }
        one.abandon(&claim).await.unwrap();
        let (hold, after) = take_soon(&other, &self::claim(&database, "a", TTL)).await;
        slowest = slowest.max(after);
        other.release(&hold).await.unwrap();
    }
    assert!(dropped > 10 && granted > 10, "{dropped} dropped, {granted} granted: nothing was proven");
    assert_eq!(session_of(&database, "a").await, None);
    eprintln!("{dropped} dropped, {granted} done; the next one had the lock after {slowest:?} at the latest");
}

async fn a_dropped_renewal_does_not_lose_the_lock(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    let (mut dropped, mut rounds) = (0, 0);
    // On a busy machine the server often answers within the first poll.
    while dropped < 20 {
        rounds += 1;
        assert!(rounds < 5000, "nothing was proven");
        let pause = Duration::from_micros(fastrand::u64(0..200));
        dropped += u32::from(drop_after(1, pause, one.renew(&[&hold])).await.is_none());
        let before = Clock::system().now();
        let Standing::Renewed(first) = confirm(&one, &hold).await else { panic!("lost") };
        let Standing::Renewed(second) = confirm(&one, &hold).await else { panic!("lost") };
        assert!(second.from >= before && first.from < second.from, "an old answer must keep its old instant");
    }
    drop_after(1, Duration::ZERO, one.renew(&[&hold])).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

async fn a_wait_ends_with_the_lock_at_the_release(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    let second = claim(&database, "a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, until(TTL)).await.unwrap() else { panic!("two holders") };
    let waiter = tokio::spawn(wake.signal.unwrap());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    let released = Clock::system().now();
    one.release(&hold).await.unwrap();
    let Signal::Granted(granted) = waiter.await.unwrap().unwrap() else { panic!("no lock") };
    let after = Clock::system().now().since(released);
    assert!(after < Duration::from_millis(500), "{after:?}");
    assert!(granted.validity.from > released, "valid since before it was granted");
    assert!(token(&granted) > token(&hold));
    assert!(matches!(confirm(&other, &granted).await, Standing::Renewed(_)));
    assert_eq!(other.release(&granted).await.unwrap(), Released::Released);
    eprintln!("handed over after {after:?}");
}

async fn a_dropped_wait_gives_its_place_up(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let hold = take_soon(&one, &claim(&database, "a", TTL)).await.0;
        let quitter = claim(&database, "a", TTL);
        let Attempt::Contended(wake) = other.try_acquire(&quitter, until(TTL)).await.unwrap() else { panic!() };
        let waiter = tokio::spawn(wake.signal.unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
        waiter.abort();
        let _ = waiter.await;
        other.abandon(&quitter).await.unwrap();
        one.release(&hold).await.unwrap();
        let (next, after) = take_soon(&one, &claim(&database, "a", TTL)).await;
        slowest = slowest.max(after);
        one.release(&next).await.unwrap();
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    eprintln!("the server noticed a dropped waiter after {slowest:?} at the latest");
}

async fn a_wait_that_runs_out_asks_again(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let _hold = take(&one, &claim(&database, "a", TTL)).await;
    let second = claim(&database, "a", TTL);
    for wait in [Duration::ZERO, Duration::from_millis(900)] {
        let Attempt::Contended(wake) = other.try_acquire(&second, until(wait)).await.unwrap() else { panic!() };
        let started = Instant::now();
        assert!(matches!(wake.signal.unwrap().await.unwrap(), Signal::Ask));
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
}

async fn waiters_of_two_backends_never_hold_at_once(database: Database) {
    let stores = [Arc::new(open(&database).await), Arc::new(open(&database).await)];
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (store, inside) = (stores[number % 2].clone(), inside.clone());
        let claims: Vec<_> = (0..20).map(|_| claim(&database, "a", TTL)).collect();
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for claim in claims {
                let hold = match store.try_acquire(&claim, until(TTL)).await.unwrap() {
                    Attempt::Acquired(hold) => hold,
                    Attempt::AlreadyRun => panic!("a claim without a period"),
                    Attempt::Contended(wake) => match wake.signal.unwrap().await.unwrap() {
                        Signal::Granted(hold) => hold,
                        Signal::Ask => panic!("waited too long"),
                    },
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                tokens.push(token(&hold));
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
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
    assert_eq!(tokens.len(), 120, "a token was given twice");
}

async fn keys_differ_by_case_blank_and_long_suffix(database: Database) {
    let one = open(&database).await;
    let long = "x".repeat(3000);
    let mut holds = Vec::new();
    for text in ["a", "A", "a ", "é", "e\u{301}", "'; DROP TABLE dlock_named; --", "\\", &long, &format!("{long}y")] {
        holds.push(take(&one, &claim(&database, text, TTL)).await);
    }
    let mut conn = database.connect().await;
    let (rows,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM dlock_named").fetch_one(&mut conn).await.unwrap();
    assert_eq!(rows, 9);
}

async fn connections_are_used_again_and_never_while_they_hold(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    let first = session_of(&database, "a").await;
    one.release(&hold).await.unwrap();
    let _again = take(&one, &claim(&database, "a", TTL)).await;
    assert_eq!(session_of(&database, "a").await, first, "a clean connection is kept");
    let _other = take(&one, &claim(&database, "b", TTL)).await;
    assert_ne!(session_of(&database, "b").await, first, "two holds on one connection");
}

async fn a_wrong_table_is_refused(database: Database) {
    let refused = async || GetLock::open(&database.url(), &Clock::system()).await.unwrap_err();
    let mut conn = database.connect().await;
    for table in [
        "CREATE TABLE dlock_named (name VARCHAR(64) PRIMARY KEY, token BIGINT)",
        "CREATE TABLE dlock_named (name VARBINARY(64) NOT NULL PRIMARY KEY, token BIGINT UNSIGNED NOT NULL, \
         conn BIGINT UNSIGNED NOT NULL, note VARBINARY(256) NOT NULL) ENGINE=MyISAM",
    ] {
        conn.execute(table).await.unwrap();
        let error = refused().await;
        assert!(matches!(error.kind(), ErrorKind::SchemaMismatch), "{error}");
        conn.execute("DROP TABLE dlock_named").await.unwrap();
    }
    GetLock::open(&database.url(), &Clock::system()).await.unwrap();
    GetLock::open(&database.url(), &Clock::system()).await.unwrap();
}

async fn a_missing_database_is_refused(database: Database) {
    let url = format!("{}_not", database.url());
    let error = GetLock::open(&url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
}

async fn fenced_writes_refuse_older_tokens(database: Database) {
    let mut conn = database.connect().await;
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

    // What is rolled back was not seen.
    let mut transaction = conn.begin().await.unwrap();
    fenced::admit(&mut transaction, &fence("a", 20), "stock").await.unwrap();
    transaction.rollback().await.unwrap();
    fenced::admit(&mut conn, &fence("a", 9), "stock").await.unwrap();
}

#[tokio::test]
async fn an_account_is_used_and_never_shown() {
    let database = Database::create(&Kind::MariaDb.shared().unwrap(), "account").await;
    let mut root = database.connect().await;
    root.execute("CREATE OR REPLACE USER 'canary'@'%' IDENTIFIED BY 'c@n/a:r?y#%é'").await.unwrap();
    let url = |password: &str| database.url_of(&format!("canary:{password}"));
    let encoded = url("c%40n%2Fa%3Ar%3Fy%23%25%C3%A9");
    let silent = |error: dlock::Error| {
        let text = text_of(&error);
        assert!(!text.contains("c@n") && !text.contains("wrong-secret") && !text.contains("canary"), "{text}");
        error
    };
    // Right password, no right on the database.
    let error = silent(GetLock::open(&encoded, &Clock::system()).await.unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    let error = silent(GetLock::open(&url("wrong-secret"), &Clock::system()).await.unwrap_err());
    assert_eq!((error.kind(), error.code()), (&ErrorKind::PermissionDenied, Some("1045")), "{error}");
    // May write, but not create.
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON {}.* TO 'canary'@'%'", database.name);
    root.execute(AssertSqlSafe(grant)).await.unwrap();
    let error = silent(GetLock::open(&encoded, &Clock::system()).await.unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS dlock_named"), "{error}");
    drop(open(&database).await);
    let one = GetLock::open(&encoded, &Clock::system()).await.unwrap();
    assert!(!format!("{one:?}").contains("canary") && format!("{one:?}").contains("127.0.0.1"), "{one:?}");
    let hold = take(&one, &claim(&database, "a", TTL)).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_closed_port_is_an_outage() {
    let error = GetLock::open("mysql://root@127.0.0.1:1/x", &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
}

/// What would disturb the other cases, on a server of its own.
async fn a_server_that_misbehaves(kind: Kind) {
    let server = kind.start().unwrap();
    let database = Database::create(&server.url(), "alone").await;
    let one = open(&database).await;

    let mut root = database.connect().await;
    root.execute("SET GLOBAL autocommit = 0").await.unwrap();
    let manual = open(&database).await;
    let hold = take(&manual, &claim(&database, "manual", TTL)).await;
    root.execute("COMMIT").await.unwrap();
    let (seen,): (u64,) =
        sqlx::query_as("SELECT token FROM dlock_named ORDER BY token DESC LIMIT 1").fetch_one(&mut root).await.unwrap();
    assert_eq!(seen, token(&hold), "the token was not committed before the body");
    root.execute("SET GLOBAL autocommit = 1").await.unwrap();

    root.execute("SET GLOBAL read_only = 1").await.unwrap();
    let error = GetLock::open(&database.url(), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPrimary), "{error}");
    root.execute("SET GLOBAL read_only = 0").await.unwrap();

    let hold = take(&one, &claim(&database, "a", TTL)).await;
    server.pause().unwrap();
    let started = Instant::now();
    let error = one.try_acquire(&claim(&database, "b", TTL), Stand::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(7), "{:?}", started.elapsed());
    assert!(drop_after(5, Duration::from_millis(10), one.renew(&[&hold])).await.is_none(), "a paused server answered");
    server.resume().unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a pause of the server lost the lock");

    server.kill9().unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    let error = one.try_acquire(&claim(&database, "b", TTL), Stand::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let _server = tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await.unwrap().unwrap();
    let next = take(&one, &claim(&database, "a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
}

#[tokio::test]
async fn a_mariadb_that_misbehaves() {
    a_server_that_misbehaves(Kind::MariaDb).await;
}

#[tokio::test]
async fn a_mysql_that_misbehaves() {
    a_server_that_misbehaves(Kind::MySql).await;
}
