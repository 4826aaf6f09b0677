//! Settings of the server that must make no difference, and those that must be told.

use dlock::{Error, ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take};
use dlock_testkit::servers::Postgres;

use crate::cases::crowds::{all_ask, crowd};
use crate::cases::limits::without_a_free_connection;
use crate::cases::support::{EXPIRE, attempt, is_refused, lease_cycle};
use crate::kit::{Database, TTL, start, try_open};
use crate::named::support::named_cycle;
use crate::row_cases::support::row_cycle;
use crate::row_kit;

row_cases! {
    settings_of_the_database_make_no_difference_to_a_session
    a_database_that_is_serializable_refuses_no_asker_of_a_crowd
    a_read_only_database_is_refused_and_told_when_it_becomes_one
    a_database_without_a_free_connection_is_an_outage_with_its_code
}

async fn settings_of_the_database_make_no_difference_to_a_session(database: Database) {
    let before = database.store().await;
    let held = take(&before, &database.claim("held", TTL)).await;
    for (number, setting) in [
        "timezone = 'Pacific/Chatham'",
        "timezone = 'America/St_Johns'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "lock_timeout = '1ms'",
        "statement_timeout = '1h'",
        "bytea_output = 'escape'",
        "datestyle = 'German'",
        "standard_conforming_strings = off",
        "extra_float_digits = -15",
        "quote_all_identifiers = on",
        "enable_indexscan = off",
    ]
    .into_iter()
    .enumerate()
    {
        database.change(&format!("ALTER DATABASE {} SET {setting}", database.name)).await;
        let (one, other) = (database.store().await, database.store().await);
        lease_cycle(&one, &other, &before, &database, &number.to_string()).await;
        is_refused(&one, &database.claim("held", TTL)).await;
        named_cycle(&database.url(), &number.to_string()).await;
        row_cycle(&database.url(), &number.to_string()).await;
        assert!(matches!(confirm(&before, &held).await, Standing::Renewed(_)), "{setting}");
    }
}

async fn a_database_that_is_serializable_refuses_no_asker_of_a_crowd(database: Database) {
    let serializable = format!("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", database.name);
    database.change(&serializable).await;
    let stores = crowd(&database).await;
    for _ in 0..5 {
        all_ask(&database, &stores, "a").await;
        database.change(EXPIRE).await;
    }
}

async fn a_read_only_database_is_refused_and_told_when_it_becomes_one(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let rows = row_kit::open(&database.url()).await.unwrap();
    let name = &database.name;
    database.change(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    // A session keeps the setting that it began with.
    database.end_sessions().await;
    let is_told = |error: Error| assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    is_told(try_open(&database.url()).await.unwrap_err());
    is_told(store.ready().await.unwrap_err());
    is_told(row_kit::open(&database.url()).await.unwrap_err());
    is_told(rows.ready().await.unwrap_err());
    let claim = claim_on(&LockKey::new("rows", Key::text("a")).unwrap(), TTL, |_| ());
    is_told(rows.try_acquire(&claim, Queue::Leave).await.unwrap_err());
    // The first one of each may have left before its session ended.
    let _ = (attempt(&store, &database.claim("b", TTL)).await, store.renew(&[&hold]).await);
    is_told(attempt(&store, &database.claim("b", TTL)).await.unwrap_err());
    is_told(store.renew(&[&hold]).await.remove(0).unwrap_err());
    is_told(store.release(&hold).await.unwrap_err());
    is_told(store.abandon(&hold.claim).await.unwrap_err());
    database
        .change(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"))
        .await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "a switch and back lost the lock");
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

/// A session that can be written to at its start, and not later, as after a change of the server's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_read_only_is_told_by_the_sessions_that_there_are() {
    let server = start(Postgres::default()).await;
    let store = try_open(&server.url()).await.unwrap();
    let hold = take(&store, &dlock_testkit::holds::claim("a", TTL)).await;
    server.ask("ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
    let refused = async || store.renew(&[&hold]).await.remove(0).is_err();
    dlock_testkit::wait_until("the server is read-only", refused).await.unwrap();
    for error in [
        store.renew(&[&hold]).await.remove(0).unwrap_err(),
        store.ready().await.unwrap_err(),
        store.release(&hold).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{error}");
    }
}

/// Most codes that dlock does not know are states that pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_allows_no_connections_for_a_while_is_worth_a_retry() {
    let server = start(Postgres::default()).await;
    server.ask("CREATE DATABASE closed").unwrap();
    server.ask("ALTER DATABASE closed ALLOW_CONNECTIONS false").unwrap();
    let url = format!("{}/closed", server.url().rsplit_once('/').unwrap().0);
    let error = try_open(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("55000")), "{error}");
    assert!(error.is_retryable(), "{error}");
    server.ask("ALTER DATABASE closed ALLOW_CONNECTIONS true").unwrap();
    try_open(&url).await.unwrap();
}

async fn a_database_without_a_free_connection_is_an_outage_with_its_code(database: Database) {
    // An ordinary account, since the limit is not for one that may do everything.
    let url = database.account_with(&[("CREATE", "SCHEMA public")]).await;
    let use_up = async || {
        let sessions = database.sessions().await.len();
        database.change(&format!("ALTER DATABASE {} CONNECTION LIMIT {sessions}", database.name)).await;
    };
    // A caller that would have one more connection uses those that there are.
    let told = without_a_free_connection(&database, &url, "53300", use_up).await;
    assert!(told.is_empty(), "{told:?}");
}

/// Without a commit that waits for the disk, the server keeps it in its memory for a while, and a kill takes it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_a_kill_of_a_server_whose_commits_do_not_wait() {
    let extra =
        ["-csynchronous_commit=off", "-cwal_writer_delay=10s", "-cwal_writer_flush_after=0", "-cautovacuum=off"];
    let server = start(Postgres { extra: extra.map(str::to_owned).to_vec(), ..Postgres::default() }).await;
    let store = try_open(&server.url()).await.unwrap();
    for number in 0..3 {
        let hold = take(&store, &dlock_testkit::holds::claim(&number.to_string(), TTL)).await;
        server.kill9().unwrap();
        tokio::task::block_in_place(|| server.restart()).unwrap();
        is_refused(&store, &dlock_testkit::holds::claim(&number.to_string(), TTL)).await;
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_flush_its_files_is_told() {
    for setting in ["-cfsync=off", "-cfull_page_writes=off"] {
        let server = start(Postgres { extra: vec![setting.to_owned()], ..Postgres::default() }).await;
        let health = try_open(&server.url()).await.unwrap().ready().await.unwrap();
        let [finding] = &health.findings[..] else { panic!("{setting}: {health}") };
        assert!(finding.contains("fsync or full_page_writes"), "{finding}");
    }
}
