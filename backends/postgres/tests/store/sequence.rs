//! Tokens of advisory locks: drawn from a sequence that rises over crashes, restores and changes of the way.

use std::sync::Arc;

use dlock::{Clock, ErrorKind};
use dlock_contract::{Attempt, Backend, Claim, Hold, Mode, Queue, Released, Signal};
use dlock_postgres::named;
use dlock_testkit::holds::{claim_on, stand, take, token};
use dlock_testkit::servers::Postgres;
use dlock_testkit::wait_until;
use sqlx::postgres::PgConnection;

use crate::kit::{Database, TTL, key, lines_of, start};
use crate::named_kit::{Store, open, open_at};

row_cases! {
    a_sequence_of_another_form_is_refused
    a_missing_right_on_the_sequence_is_its_own_error
    a_table_that_is_logged_is_told_and_works
    tokens_rise_over_a_restored_sequence
    a_token_is_never_below_the_clock
    a_sequence_that_is_used_up_grants_nothing
}

/// The server's own write of what it knows only in memory comes late, so that a crash finds it undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_crashes_of_the_server() {
    let extra = vec!["--wal_writer_delay=10s".to_owned()];
    let server = start(Postgres { extra, ..Postgres::default() }).await;
    let database = Database::create(&server.url(), "crashes").await;
    let store = open(&database).await;
    // The sequence of each start of the server, from its first draw on.
    cycle(&store, &database.claim("a", TTL)).await;
    for crash in ["of one session", "of the whole server"] {
        // So that the sequence is not behind the clock soon, which would be a reason to write to the disk.
        database.change("SELECT setval('dlock_tokens', nextval('dlock_tokens') + 3600000000)").await;
        let mut somebody = draw_without_a_commit(&database).await;
        let before = take(&store, &database.claim("a", TTL)).await;
        let counted: i64 = lines_of(&mut somebody, "SELECT last_value FROM dlock_tokens").await[0].parse().unwrap();
        assert_eq!(counted.cast_unsigned(), token(&before));
        if crash == "of one session" {
            // The server ends all sessions then, and recovers from its log.
            let own_death = sqlx::raw_sql("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'").execute(&mut somebody).await;
            assert!(own_death.is_err());
        } else {
            tokio::task::block_in_place(|| server.kill9().and_then(|()| server.restart())).unwrap();
        }
        let after = take_again(&store, &database.claim("a", TTL)).await;
        assert!(token(&after) > token(&before), "a crash {crash}: {} after {}", token(&after), token(&before));
        assert_eq!(store.release(&after).await.unwrap(), Released::Released);
        // Nobody may have noticed yet that its session has ended. Then the first answer is an outage, and the engine asks again.
        let ended = async || store.release(&before).await.is_ok_and(|released| released == Released::NotOwner);
        wait_until("its end is known", ended).await.unwrap();
    }
    // The notes have gone with the crash, as the locks have.
    assert_eq!(database.lines("SELECT count(*) FROM dlock_named WHERE k <> ''").await, ["1"]);
}

/// Draws until the server has noted values ahead, and leaves the transaction open: then nothing makes the note durable, and
/// those who draw the noted values do not wait for it.
async fn draw_without_a_commit(database: &Database) -> PgConnection {
    let mut somebody = database.connect().await;
    sqlx::raw_sql("BEGIN").execute(&mut somebody).await.unwrap();
    for _ in 0..100 {
        sqlx::raw_sql("SELECT nextval('dlock_tokens')").execute(&mut somebody).await.unwrap();
        if lines_of(&mut somebody, "SELECT log_cnt FROM dlock_tokens").await == ["32"] {
            return somebody;
        }
    }
    panic!("the server noted nothing");
}

async fn cycle(store: &Store, claim: &Arc<Claim>) -> u64 {
    let hold = take(store, claim).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    token(&hold)
}

/// Takes the lock as soon as the server is there again.
async fn take_again(store: &Store, claim: &Arc<Claim>) -> Hold {
    let mut granted = None;
    wait_until("the server grants again", async || {
        let answer = store.try_acquire(claim, Queue::Leave).await;
        if let Ok(Attempt::Acquired(hold)) = answer {
            granted = Some(hold);
        }
        granted.is_some()
    })
    .await
    .unwrap();
    granted.unwrap()
}

async fn a_sequence_of_another_form_is_refused(database: Database) {
    drop(open(&database).await);
    for wrong in [
        "CREATE SEQUENCE dlock_tokens CACHE 10",
        "CREATE SEQUENCE dlock_tokens AS INTEGER",
        "CREATE SEQUENCE dlock_tokens CYCLE",
        "CREATE SEQUENCE dlock_tokens INCREMENT -1",
        "CREATE SEQUENCE dlock_tokens MAXVALUE 1000",
        "CREATE UNLOGGED SEQUENCE dlock_tokens",
        "CREATE TABLE dlock_tokens (id BIGINT)",
    ] {
        let store = open(&database).await;
        database.change("DROP SEQUENCE dlock_tokens").await;
        let error = store.ready().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
        database.change(wrong).await;
        for error in
            [store.ready().await.unwrap_err(), named::open(&database.url(), &Clock::system()).await.unwrap_err()]
        {
            assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
            assert!(error.to_string().contains("CREATE SEQUENCE dlock_tokens AS BIGINT"), "{wrong}: {error}");
        }
        let what = if wrong.contains("TABLE") { "TABLE" } else { "SEQUENCE" };
        database.change(&format!("DROP {what} dlock_tokens")).await;
    }
    drop(open(&database).await);
}

async fn a_missing_right_on_the_sequence_is_its_own_error(database: Database) {
    drop(open(&database).await);
    let rows = ["dlock_meta", "dlock_named", "dlock_read_write"].map(|table| ("SELECT, INSERT, UPDATE", table));
    let url = database.account_with(&rows).await;
    let refused = async || {
        let error = named::open(&url, &Clock::system()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("GRANT UPDATE ON SEQUENCE dlock_tokens"), "{error}");
    };
    refused().await;
    let (account, _) = url.split_once("://").unwrap().1.split_once(':').unwrap();
    database.change(&format!("GRANT SELECT, USAGE ON SEQUENCE dlock_tokens TO {account}")).await;
    refused().await;
    database.change(&format!("GRANT UPDATE ON SEQUENCE dlock_tokens TO {account}")).await;
    let store = open_at(&url).await;
    store.ready().await.unwrap();
    cycle(&store, &database.claim("a", TTL)).await;
    database.change("DROP SEQUENCE dlock_tokens").await;
    let error = named::open(&url, &Clock::system()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("CREATE SEQUENCE dlock_tokens"), "{error}");
}

async fn a_table_that_is_logged_is_told_and_works(database: Database) {
    let store = open(&database).await;
    assert_eq!(store.ready().await.unwrap().findings, [""; 0]);
    assert_eq!(database.lines("SELECT relpersistence FROM pg_class WHERE relname = 'dlock_named'").await, ["u"]);
    database.change("ALTER TABLE dlock_named SET LOGGED").await;
    let findings = store.ready().await.unwrap().findings;
    assert!(
        findings.len() == 1 && findings[0].contains("dlock_named") && findings[0].contains("UNLOGGED"),
        "{findings:?}"
    );
    let store = open(&database).await;
    let before = cycle(&store, &database.claim("a", TTL)).await;
    assert!(cycle(&store, &database.claim("a", TTL)).await > before);
}

/// As by a dump of an earlier day: the tables have their rows, and the sequence is another one with an earlier value.
async fn tokens_rise_over_a_restored_sequence(database: Database) {
    let store = open(&database).await;
    cycle(&store, &database.claim("a", TTL)).await;
    // As if it had been made an hour ago.
    database.change(&format!("SELECT setval('dlock_tokens', {} - 3600000000)", crate::kit::NOW)).await;
    let before = cycle(&store, &database.claim("a", TTL)).await;
    database.change("DROP SEQUENCE dlock_tokens; CREATE SEQUENCE dlock_tokens").await;
    let after = cycle(&open(&database).await, &database.claim("a", TTL)).await;
    assert!(after > before, "{after} after {before}");
    // The next sessions find the mark of the new one, and leave it as it is.
    for _ in 0..3 {
        cycle(&open(&database).await, &database.claim("a", TTL)).await;
    }
    let last: u64 = database.lines("SELECT last_value FROM dlock_tokens").await[0].parse().unwrap();
    assert!(last < after + 3 * (1 << 24), "each session raised the sequence: from {after} to {last}");
}

/// So they rise also when a namespace comes from lease rows, or from another store.
async fn a_token_is_never_below_the_clock(database: Database) {
    let (store, other) = (open(&database).await, open(&database).await);
    let now = async || database.lines(&format!("SELECT {}", crate::kit::NOW)).await[0].parse::<u64>().unwrap();
    for (mode, other_mode) in [(Mode::Exclusive, Mode::Exclusive), (Mode::Read, Mode::Write), (Mode::Write, Mode::Read)]
    {
        let claim = |mode| claim_on(&key(&database, "a"), TTL, |claim| claim.mode = mode);
        for _ in 0..2 {
            database.change("SELECT setval('dlock_tokens', 1)").await;
            let before = now().await;
            let hold = take(&store, &claim(mode)).await;
            assert!(token(&hold) >= before, "{mode:?}: {} at {before}", token(&hold));
            let wake = stand(&other, &claim(other_mode)).await;
            let waiting = tokio::spawn(wake.signal.unwrap());
            database.until_one_waits().await;
            database.change("SELECT setval('dlock_tokens', 1)").await;
            let before = now().await;
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            let Signal::Granted(next) = waiting.await.unwrap().unwrap() else { panic!("no lock") };
            assert!(token(&next) >= before, "{mode:?}, after a wait: {} at {before}", token(&next));
            assert_eq!(other.release(&next).await.unwrap(), Released::Released);
        }
    }
    // While the sequence is ahead of the clock, each draw raises it by one.
    database.change("SELECT setval('dlock_tokens', nextval('dlock_tokens') + 3600000000)").await;
    let first = cycle(&store, &database.claim("b", TTL)).await;
    assert_eq!(cycle(&store, &database.claim("b", TTL)).await, first + 1);
}

async fn a_sequence_that_is_used_up_grants_nothing(database: Database) {
    let store = open(&database).await;
    cycle(&store, &database.claim("a", TTL)).await;
    for last in [(1_u64 << 53) - 1, i64::MAX.unsigned_abs()] {
        database.change(&format!("SELECT setval('dlock_tokens', {last})")).await;
        let mut refused = None;
        wait_until("the lock that had no token is free again", async || {
            refused = store.try_acquire(&database.claim("a", TTL), Queue::Leave).await.err();
            refused.is_some()
        })
        .await
        .unwrap();
        let error = refused.unwrap();
        assert_eq!(*error.kind(), ErrorKind::FenceExhausted, "{last}: {error}");
        assert!(!error.is_retryable(), "{error}");
    }
    database.change("SELECT setval('dlock_tokens', 1)").await;
    let hold = take_again(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
