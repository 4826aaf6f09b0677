//! Files of an earlier version, and files that are nonsense.

use dlock::backends::sqlite::Sqlite;
use dlock::{ErrorKind, HoldId, Mode};
use dlock_contract::{Backend, BreakRecord, Queue, Standing};
use dlock_testkit::holds::{confirm, take, token};
use sqlx::Connection;

use crate::store::{Store, contended, mode_claim, permits};

/// The file as version 1 has written it, to the letter.
const FIRST: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE dlock_schema (version INTEGER NOT NULL) STRICT;
    CREATE TABLE dlock_fence (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        token INTEGER NOT NULL CHECK (token <= bound),
        bound INTEGER NOT NULL CHECK (bound < 9007199254740992),
        boot TEXT NOT NULL
    ) STRICT;
    CREATE TABLE dlock_locks (
        k TEXT PRIMARY KEY,
        owner BLOB NOT NULL,
        token INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        boot TEXT NOT NULL,
        note TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER dlock_granted AFTER INSERT ON dlock_locks BEGIN
        UPDATE dlock_fence SET token = new.token;
    END;
    CREATE TRIGGER dlock_taken_over AFTER UPDATE OF token ON dlock_locks WHEN new.token <> old.token BEGIN
        UPDATE dlock_fence SET token = new.token;
    END;
    INSERT INTO dlock_schema (version) VALUES (1);
    INSERT INTO dlock_fence VALUES (1, 2000000000000000, 2000000001048576, 'another');";

const AS_FIRST: &str = "
    DROP INDEX dlock_kept; DROP TRIGGER dlock_shares_outlived;
    DROP TABLE dlock_shares; DROP TABLE dlock_writers; DROP TABLE dlock_runs; DROP TABLE dlock_broken;
    UPDATE dlock_schema SET version = 1;";

const AS_SECOND: &str = "DROP TABLE dlock_broken; UPDATE dlock_schema SET version = 2;";

#[tokio::test]
async fn a_file_of_version_1_is_upgraded_by_the_first_process_that_opens_it() {
    let store = Store::new();
    store.change(FIRST).await;
    let opened = futures::future::join_all((0..6).map(|_| store.open())).await;
    assert_eq!(store.ask("SELECT version FROM dlock_schema").await, 3);
    let hold = take(&opened[0], &mode_claim(permits(2))).await;
    assert!(token(&hold) > 2_000_000_001_048_576, "a token came again");
    take(&opened[1], &mode_claim(permits(2))).await;
    contended(&opened[2], &mode_claim(permits(2)), Queue::Leave).await;
}

#[tokio::test]
async fn a_lock_of_an_earlier_version_outlives_the_upgrade() {
    for earlier in [AS_FIRST, AS_SECOND] {
        let store = Store::new();
        let one = store.open().await;
        store.change(earlier).await;
        let hold = take(&one, &mode_claim(Mode::Exclusive)).await;
        let other = store.open().await;
        assert_eq!(store.ask("SELECT version FROM dlock_schema").await, 3);
        contended(&other, &mode_claim(Mode::Exclusive), Queue::Leave).await;
        crate::store::conflicts(&other, &mode_claim(Mode::Read), Queue::Leave).await;
        assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        let id = HoldId::of(&hold.claim.owner);
        let inspect = other.inspect().unwrap();
        assert!(inspect.break_hold(&hold.claim.key, id, &BreakRecord::new("alice", 1, "test")).await.unwrap());
        assert_eq!(confirm(&one, &hold).await, Standing::Lost);
        assert_eq!(inspect.record_of(&hold).await.unwrap().unwrap().operator(), Some("alice"));
        assert!(token(&take(&other, &mode_claim(Mode::Read)).await) > token(&hold));
    }
}

#[tokio::test]
async fn a_file_that_is_no_lock_file_is_refused() {
    for (nonsense, what) in [
        ("UPDATE dlock_schema SET version = 4", "a later version"),
        ("UPDATE dlock_schema SET version = 0", "no version"),
        ("INSERT INTO dlock_schema VALUES (2)", "two versions"),
        ("UPDATE dlock_schema SET version = 1", "version 1 with tables of later ones"),
        ("DROP TABLE dlock_runs", "a table that is missing"),
        ("DROP TABLE dlock_shares; CREATE TABLE dlock_shares (k)", "a stranger's table"),
    ] {
        let store = Store::new();
        store.open().await.close().await;
        let mut conn = store.connect().await;
        sqlx::raw_sql(nonsense).execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        let error = Sqlite::open(&store.url(), &store.clock).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::SchemaMismatch), "{what}: {error}");
    }
}
