//! Servers, accounts and tables that are not as they should be.

use std::time::{Duration, Instant};

use dlock::backends::mysql::named;
use dlock::{Clock, ErrorKind, HoldId, Key, LockKey};
use dlock_contract::{Attempt, Backend, BreakRecord, Inspect, Listing, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::{drop_after, lateness, text_of};
use sqlx::{AssertSqlSafe, Executor};

use crate::named_kit::{Store, TTL, open};
use crate::server::{Database, Kind};

named_cases! {
    on both:
    a_wrong_table_is_refused
    a_missing_database_is_refused
}

async fn a_wrong_table_is_refused(database: Database) {
    let refused = async || named::open(&database.url(), &Clock::system()).await.unwrap_err();
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
    named::open(&database.url(), &Clock::system()).await.unwrap();
    named::open(&database.url(), &Clock::system()).await.unwrap();
}

async fn a_missing_database_is_refused(database: Database) {
    let url = format!("{}_not", database.url());
    let error = named::open(&url, &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
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
    let error = silent(named::open(&encoded, &Clock::system()).await.unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    let error = silent(named::open(&url("wrong-secret"), &Clock::system()).await.unwrap_err());
    assert_eq!((error.kind(), error.code()), (&ErrorKind::PermissionDenied, Some("1045")), "{error}");
    // May write, but not create.
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON {}.* TO 'canary'@'%'", database.name);
    root.execute(AssertSqlSafe(grant)).await.unwrap();
    let error = silent(named::open(&encoded, &Clock::system()).await.unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    assert!(error.to_string().contains("CREATE TABLE dlock_named"), "{error}");
    drop(open(&database).await);
    let one = named::open(&encoded, &Clock::system()).await.unwrap();
    assert!(!format!("{one:?}").contains("canary") && format!("{one:?}").contains("127.0.0.1"), "{one:?}");
    let hold = take(&one, &database.claim("a", TTL)).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_closed_port_is_an_outage() {
    let error = named::open("mysql://root@127.0.0.1:1/x", &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
}

/// Faults that would disturb the other cases, on a server of their own.
async fn a_server_that_misbehaves(kind: Kind) {
    let server = kind.start().unwrap();
    let database = Database::create(&server.url(), "alone").await;
    let one = open(&database).await;

    let mut root = database.connect().await;
    root.execute("SET GLOBAL autocommit = 0").await.unwrap();
    let manual = open(&database).await;
    let hold = take(&manual, &database.claim("manual", TTL)).await;
    root.execute("COMMIT").await.unwrap();
    let (seen,): (i64,) =
        sqlx::query_as("SELECT token FROM dlock_named ORDER BY token DESC LIMIT 1").fetch_one(&mut root).await.unwrap();
    assert_eq!(seen.cast_unsigned(), token(&hold), "the token was not committed before the body");
    // The monitor has read the table before, and must not go on with that old state.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(manual.break_hold(&hold.claim.key, HoldId::of(&hold.claim.owner), &record).await.unwrap());
    root.execute("SET GLOBAL autocommit = 1").await.unwrap();

    a_page_reads_no_more_rows_than_its_limit(&one, &database).await;
    a_request_that_is_refused_waits_for_no_row(&one, &database).await;

    root.execute("SET GLOBAL read_only = 1").await.unwrap();
    let error = named::open(&database.url(), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPrimary), "{error}");
    root.execute("SET GLOBAL read_only = 0").await.unwrap();

    let hold = take(&one, &database.claim("a", TTL)).await;
    server.pause().unwrap();
    lateness::watch();
    let started = Instant::now();
    let error = one.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
    lateness::assert_within(Duration::from_secs(7), started, "the answer");
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    assert!(drop_after(5, Duration::from_millis(10), one.renew(&[&hold])).await.is_none(), "a paused server answered");
    server.resume().unwrap();
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a pause of the server lost the lock");

    server.kill9().unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    let error = one.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let _server = tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await.unwrap().unwrap();
    let next = take(&one, &database.claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
}

/// No other test uses the server, so its counters are those of this file.
async fn a_page_reads_no_more_rows_than_its_limit(store: &Store, database: &Database) {
    let mut conn = database.connect().await;
    let key = LockKey::new(&database.name, Key::text("x")).unwrap();
    let columns = "INSERT INTO dlock_named (k, lock_id, token, session, note, hold)";
    conn.execute(AssertSqlSafe(format!("{columns} VALUES ('{key}', 'x', 1, 1, '', '')"))).await.unwrap();
    for _ in 0..13 {
        let more = format!(
            "{columns} SELECT CONCAT('{key}', SHA2(UUID(), 256)), 'x', 1, 1, '', '' \
             FROM dlock_named WHERE lock_id = 'x'"
        );
        conn.execute(AssertSqlSafe(more)).await.unwrap();
    }
    conn.execute("ANALYZE TABLE dlock_named").await.unwrap();
    let mut rows_read = async || -> i64 {
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN \
                   ('Handler_read_next', 'Handler_read_rnd', 'Handler_read_rnd_next', 'Handler_read_key')";
        let rows: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(&mut conn).await.unwrap();
        rows.iter().map(|(_, count)| count.parse::<i64>().unwrap()).sum()
    };
    // Looking at the counters reads rows too.
    let (start, before) = (rows_read().await, rows_read().await);
    let listing = Listing::of(database.name.clone()).with(|listing| listing.limit = 1000);
    let page = store.list(&listing).await.unwrap();
    let read = rows_read().await - before - (before - start);
    assert!(page.next.is_some() && read < 2000, "a page of 1000 entries read {read} rows");
    eprintln!("a page of 1000 entries of 8192 read {read} rows");
}

/// Somebody keeps the row of a lock that is held. A draw would wait behind it. No other test uses the server, so its counter is
/// that of this file.
async fn a_request_that_is_refused_waits_for_no_row(store: &Store, database: &Database) {
    let hold = take(store, &database.claim("refused", TTL)).await;
    let hindering = database.hinder_draws(hold.claim.key.as_str()).await;
    let mut conn = database.connect().await;
    let mut waits = async || -> (String, String) {
        let sql = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'";
        sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap()
    };
    let before = waits().await;
    let refused = store.try_acquire(&database.claim("refused", TTL), Queue::Leave).await;
    assert!(matches!(refused, Ok(Attempt::Contended(_))), "{refused:?}");
    assert_eq!(waits().await, before);
    drop(hindering);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_mariadb_that_misbehaves() {
    a_server_that_misbehaves(Kind::MariaDb).await;
}

#[tokio::test]
async fn a_mysql_that_misbehaves() {
    a_server_that_misbehaves(Kind::MySql).await;
}
