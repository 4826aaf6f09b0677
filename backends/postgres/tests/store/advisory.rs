//! Advisory locks, as PostgreSQL alone has them.

use std::sync::Arc;
use std::time::Duration;

use dlock::{Clock, ErrorKind, HoldId, Key, LockKey, Registry};
use dlock_contract::{Attempt, Backend, BreakRecord, Claim, Inspect, Queue, Released, Signal, Standing};
use dlock_postgres::named;
use dlock_testkit::holds::{claim, claim_on, confirm, take, token};
use dlock_testkit::servers::{Instance, PgBouncer, Postgres};
use dlock_testkit::{drop_after, text_of, wait_until};
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockKey};

use crate::kit::{Database, TTL, start};
use crate::named::support::{take_soon, until};
use crate::named_kit::{Store, held_and_waited_for, is_used, open, open_at};

row_cases! {
    another_program_that_has_the_number_excludes_ours
    limits_of_the_account_end_no_wait_and_no_hold
    a_dropped_waiter_leaves_the_line_while_the_lock_is_held
    a_literal_key_is_the_number_that_other_programs_use
    a_literal_key_that_is_no_number_is_refused
    a_key_is_not_literal_unless_the_url_says_so
    a_namespace_is_locked_in_one_way
    an_option_of_a_pool_is_refused
    the_table_is_in_the_schema_that_the_url_names
    a_second_schema_of_one_namespace_is_refused
    tables_of_other_programs_are_no_obstacle
    a_table_of_another_owner_is_not_read
    a_right_that_is_missing_is_told_when_the_store_is_opened
    a_table_of_another_form_is_refused
}

cases_with_own_server! {
    a_pause_of_the_server_loses_nothing_and_a_restart_all
}

async fn another_program_that_has_the_number_excludes_ours(database: Database) {
    let store = open(&database).await;
    let wanted = database.claim("a", TTL);
    let names = store.identify(&wanted.key).unwrap();
    let [number] = &names.names()[..] else { panic!("one name") };
    let mut other = database.connect().await;
    assert_eq!(crate::kit::lines_of(&mut other, &format!("SELECT pg_try_advisory_lock({number})")).await, ["t"]);
    let refused = store.try_acquire(&wanted, Queue::Leave).await.unwrap();
    assert!(matches!(refused, Attempt::Contended(_)), "{refused:?}");
    assert!(store.look(&wanted.key).await.unwrap().holders.is_empty(), "dlock knows nothing of that holder");
    drop(other);
    let (hold, _) = take_soon(&store, &wanted).await;
    assert!(is_used(&database, number).await);
    let mut other = database.connect().await;
    assert_eq!(crate::kit::lines_of(&mut other, &format!("SELECT pg_try_advisory_lock({number})")).await, ["f"]);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn limits_of_the_account_end_no_wait_and_no_hold(database: Database) {
    for limit in ["statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"] {
        database.change(&format!("ALTER DATABASE {} SET {limit} = '300ms'", database.name)).await;
    }
    let (one, other) = (open(&database).await, open(&database).await);
    let (hold, waiting) = held_and_waited_for(&database, [&one, &other]).await;
    // Longer than each limit, and than dlock's own for a statement.
    tokio::time::sleep(Duration::from_millis(5500)).await;
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a limit has ended the session");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let granted = waiting.await.unwrap().unwrap();
    assert!(matches!(granted, Signal::Granted(_)), "a limit has ended the wait");
}

async fn a_dropped_waiter_leaves_the_line_while_the_lock_is_held(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    let quitter = database.claim("a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&quitter, until(TTL)).await.unwrap() else {
        panic!("two holders")
    };
    let waiter = tokio::spawn(wake.signal.unwrap());
    database.until_one_waits().await;
    waiter.abort();
    let left = async || database.lines("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").await;
    wait_until("the server has forgotten the waiter", async || left().await.is_empty()).await.unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

/// A store, and the claims of one literal key.
async fn literal(database: &Database, text: &'static str) -> (Store, impl Fn() -> Arc<Claim>) {
    let store = open_at(&format!("{}?keys=literal", database.url())).await;
    let key = LockKey::new(&database.name, Key::text(text)).unwrap();
    (store, move || claim_on(&key, TTL, |_| ()))
}

async fn a_literal_key_is_the_number_that_other_programs_use(database: Database) {
    let mut conn = database.connect().await;
    for (text, number) in [("42", "42"), ("-7", "-7"), ("1,42", "1, 42"), ("-1,-2147483648", "-1, -2147483648")] {
        let (store, claim) = literal(&database, text).await;
        let hold = take(&store, &claim()).await;
        let state = store.look(&hold.claim.key).await.unwrap();
        assert_eq!(state.holders[0].token, Some(token(&hold)), "{text}");
        let tries = |word: &str| format!("SELECT pg_try_advisory_{word}({number})");
        assert_eq!(crate::kit::lines_of(&mut conn, &tries("lock")).await, ["f"], "{text}");
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(crate::kit::lines_of(&mut conn, &tries("lock")).await, ["t"], "{text}");
        let refused = store.try_acquire(&claim(), Queue::Leave).await.unwrap();
        assert!(matches!(refused, Attempt::Contended(_)), "{text}: {refused:?}");
        let unlock = format!("SELECT pg_advisory_unlock({number})");
        assert_eq!(crate::kit::lines_of(&mut conn, &unlock).await, ["t"]);
        // A wait, and a break.
        let hold = take(&store, &claim()).await;
        let Attempt::Contended(wake) = store.try_acquire(&claim(), until(TTL)).await.unwrap() else { panic!("{text}") };
        let id = HoldId::of(&hold.claim.owner);
        assert!(store.break_hold(&hold.claim.key, id, &BreakRecord::new("alice", 1, "hangs")).await.unwrap());
        let Signal::Granted(next) = wake.signal.unwrap().await.unwrap() else { panic!("{text}: no lock") };
        assert_eq!(store.release(&next).await.unwrap(), Released::Released);
    }
    // The client that the lock's users have.
    let (store, claim) = literal(&database, "4711").await;
    let theirs = PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(4711));
    let guard = theirs.acquire(&mut conn).await.unwrap();
    assert!(matches!(store.try_acquire(&claim(), Queue::Leave).await.unwrap(), Attempt::Contended(_)));
    guard.release_now().await.unwrap();
    let hold = take(&store, &claim()).await;
    assert!(theirs.try_acquire(&mut conn).await.unwrap().is_right(), "two holders");
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_literal_key_that_is_no_number_is_refused(database: Database) {
    for text in ["stock", "1,2,3", "007"] {
        let (store, claim) = literal(&database, text).await;
        let error = store.identify(&claim().key).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("number") && error.to_string().contains(text), "{error}");
        let error = store.try_acquire(&claim(), Queue::Leave).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
    let error = Registry::new().connect("default", &format!("{}?keys=literal", database.url())).await.unwrap_err();
    assert!(error.to_string().contains("way=named"), "{error}");
}

async fn a_key_is_not_literal_unless_the_url_says_so(database: Database) {
    let store = open(&database).await;
    let key = LockKey::new(&database.name, Key::text("42")).unwrap();
    let hold = take(&store, &claim_on(&key, TTL, |_| ())).await;
    assert_eq!(database.lines("SELECT pg_try_advisory_lock(42)").await, ["t"]);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_namespace_is_locked_in_one_way(database: Database) {
    let (rows, named) = (database.store().await, open(&database).await);
    let hold = take(&rows, &database.claim("a", TTL)).await;
    let error = named.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    assert!(error.to_string().contains("way=lease"), "{error}");
    assert_eq!(rows.release(&hold).await.unwrap(), Released::Released);
}

async fn an_option_of_a_pool_is_refused(database: Database) {
    for option in ["max_connections=2", "idle_timeout=1s", "max_lifetime=1s"] {
        let url = format!("{}?way=named&{option}", database.url());
        let error = Registry::new().connect("default", &url).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{option}: {error}");
        let name = option.split_once('=').unwrap().0;
        assert!(error.to_string().contains(name) && error.to_string().contains("way=lease"), "{error}");
    }
    let url = format!("{}?way=named&connect_timeout=4s&sweep_every=2h&sweep_after=9d", database.url());
    Registry::new().connect("default", &url).await.unwrap();
}

async fn the_table_is_in_the_schema_that_the_url_names(database: Database) {
    database.change("CREATE SCHEMA aside").await;
    let store = open_at(&format!("{}?schema=aside", database.url())).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(database.lines("SELECT k FROM aside.dlock_named WHERE k <> ''").await, [hold.claim.key.as_str()]);
    assert_eq!(store.look(&hold.claim.key).await.unwrap().holders.len(), 1);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

/// The lock's number has no schema in it, and each schema has a sequence of tokens.
async fn a_second_schema_of_one_namespace_is_refused(database: Database) {
    database.change("CREATE SCHEMA aside").await;
    let (here, there) = (open(&database).await, open_at(&format!("{}?schema=aside", database.url())).await);
    let hold = take(&here, &database.claim("a", TTL)).await;
    assert_eq!(here.release(&hold).await.unwrap(), Released::Released);
    for _ in 0..2 {
        let error = there.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
        assert!(error.to_string().contains("in the table dlock_meta too") && !error.may_have_left(), "{error}");
        assert_eq!(there.admits(&hold.claim.key).await.unwrap_err().kind(), error.kind());
    }
    // The programs of the first schema go on, also in a new process.
    let again = open(&database).await;
    let next = take(&again, &database.claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    again.release(&next).await.unwrap();
    // As the text says.
    database.change("DELETE FROM dlock_meta WHERE name LIKE 'way:%'").await;
    let moved = take(&there, &database.claim("b", TTL)).await;
    there.release(&moved).await.unwrap();
}

/// Neither are those of dlock that the account may not read.
async fn tables_of_other_programs_are_no_obstacle(database: Database) {
    let wanted = database.claim("a", TTL);
    let row = format!("INSERT INTO theirs.dlock_meta VALUES ('{}', 'named', 0)", dlock_sql::way_name(&wanted.key));
    let theirs = "CREATE SCHEMA theirs; CREATE TABLE theirs.dlock_meta (name text, word text, number bigint)";
    database.change(&format!("{theirs}; {row}; CREATE TABLE meta (name int)")).await;
    drop(open(&database).await);
    let rights = ["dlock_named", "dlock_read_write", "dlock_meta"].map(|table| ("SELECT, INSERT, UPDATE", table));
    let url = database.account_with(&[&rights[..], &[("UPDATE", "SEQUENCE dlock_tokens")]].concat()).await;
    let store = named::open(&url, &Clock::system()).await.unwrap();
    assert_eq!(store.ready().await.unwrap().findings, [""; 0]);
    let hold = take(&store, &wanted).await;
    store.release(&hold).await.unwrap();
}

/// Reading a table runs code of its owner with the rights of the reader.
async fn a_table_of_another_owner_is_not_read(database: Database) {
    let wanted = database.claim("a", TTL);
    drop(open(&database).await);
    let owner = format!("o{:08x}", fastrand::u32(..));
    let row = format!("INSERT INTO theirs.dlock_meta VALUES ('{}', 'named', 0)", dlock_sql::way_name(&wanted.key));
    for sql in [
        format!("CREATE ROLE {owner}; CREATE SCHEMA theirs; GRANT ALL ON SCHEMA theirs TO {owner}"),
        "GRANT USAGE ON SCHEMA theirs TO PUBLIC; CREATE SEQUENCE theirs.reads; GRANT ALL ON SEQUENCE theirs.reads TO PUBLIC"
            .to_owned(),
        format!("CREATE TABLE theirs.dlock_meta (name text, word text, number bigint); {row}"),
        "CREATE POLICY code ON theirs.dlock_meta USING (nextval('theirs.reads') > 0)".to_owned(),
        "GRANT SELECT ON theirs.dlock_meta TO PUBLIC".to_owned(),
        format!("ALTER TABLE theirs.dlock_meta OWNER TO {owner}"),
    ] {
        database.change(&sql).await;
    }
    let rights = ["dlock_named", "dlock_read_write", "dlock_meta"].map(|table| ("SELECT, INSERT, UPDATE", table));
    let url = database.account_with(&[&rights[..], &[("UPDATE", "SEQUENCE dlock_tokens")]].concat()).await;
    for security in ["ENABLE", "DISABLE"] {
        database.change(&format!("ALTER TABLE theirs.dlock_meta {security} ROW LEVEL SECURITY")).await;
        let store = named::open(&url, &Clock::system()).await.unwrap();
        assert_eq!(store.ready().await.unwrap().findings, [""; 0]);
        let hold = take(&store, &wanted).await;
        store.release(&hold).await.unwrap();
        database.change("DELETE FROM dlock_meta WHERE name LIKE 'way:%'").await;
    }
    assert_eq!(database.lines("SELECT is_called FROM theirs.reads").await, ["f"]);
}

async fn a_right_that_is_missing_is_told_when_the_store_is_opened(database: Database) {
    drop(open(&database).await);
    let others = [("SELECT, INSERT, UPDATE", "dlock_meta"), ("UPDATE", "SEQUENCE dlock_tokens")];
    for (rights, is_enough) in
        [("SELECT", false), ("SELECT, INSERT", false), ("INSERT, UPDATE", false), ("SELECT, INSERT, UPDATE", true)]
    {
        let tables = [(rights, "dlock_named"), (rights, "dlock_read_write")];
        let url = database.account_with(&[tables, others].concat()).await;
        match named::open(&url, &Clock::system()).await {
            Ok(store) => {
                assert!(is_enough, "opened with {rights} alone");
                let hold = take(&store, &database.claim("a", TTL)).await;
                assert!(store.look(&hold.claim.key).await.unwrap().note().is_some());
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
            Err(error) => {
                assert!(!is_enough, "{rights}: {error}");
                assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
                assert!(!text_of(&error).contains("p@ss"), "{error:?}");
            }
        }
    }
}

async fn a_table_of_another_form_is_refused(database: Database) {
    for table in
        ["CREATE TABLE dlock_named (k TEXT PRIMARY KEY, token BIGINT)", "CREATE VIEW dlock_named AS SELECT 1 AS k"]
    {
        database.change(table).await;
        let error = named::open(&database.url(), &Clock::system()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
        assert!(error.to_string().contains("CREATE UNLOGGED TABLE dlock_named"), "{error}");
        let what = if table.contains("VIEW") { "VIEW" } else { "TABLE" };
        database.change(&format!("DROP {what} dlock_named")).await;
    }
    drop(open(&database).await);
    drop(open(&database).await);
}

async fn a_pause_of_the_server_loses_nothing_and_a_restart_all(server: Instance, database: Database) {
    let store = open(&database).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    server.pause().unwrap();
    let error = store.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let renewal = drop_after(5, Duration::from_millis(10), store.renew(&[&hold])).await;
    assert!(renewal.is_none(), "a paused server answered");
    server.resume().unwrap();
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "a pause of the server lost the lock");
    server.kill9().unwrap();
    assert_eq!(confirm(&store, &hold).await, Standing::Lost);
    let error = store.try_acquire(&database.claim("b", TTL), Queue::Leave).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Outage) && error.is_retryable(), "{error}");
    let _server = tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await.unwrap().unwrap();
    let next = take(&store, &database.claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
}

async fn behind_a_pooler(extra: &[&str]) -> (Instance, Instance) {
    let server = start(Postgres::default()).await;
    let mut recipe = PgBouncer::before(&server);
    recipe.extra = extra.iter().map(|&line| line.to_owned()).collect();
    let bouncer = start(recipe).await;
    (server, bouncer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_transaction_another_session_is_refused_and_left_as_it_was() {
    let (_server, bouncer) = behind_a_pooler(&["default_pool_size = 1"]).await;
    let error = named::open(&bouncer.url(), &Clock::system()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("pooler") && error.to_string().contains("way=lease"), "{error}");
    for setting in ["statement_timeout", "lock_timeout", "client_connection_check_interval", "idle_session_timeout"] {
        assert_eq!(bouncer.ask(&format!("SHOW {setting}")).unwrap(), "0", "{setting}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_client_its_own_session_holds_advisory_locks() {
    let (_server, bouncer) = behind_a_pooler(&["pool_mode = session"]).await;
    let store = open_at(&bouncer.url()).await;
    let hold = take(&store, &claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
