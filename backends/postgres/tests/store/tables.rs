//! Tables that are not dlock's, under its names.

use dlock::ErrorKind;
use dlock_contract::Backend;

use crate::kit::{Database, key, try_open};

row_cases! {
    a_table_of_somebody_else_is_refused_and_left_as_it_is
    a_table_that_was_changed_later_is_told_by_a_question_after_the_state
    tables_of_the_shipped_files_are_dlocks_own
    programs_that_start_together_make_the_tables_once
}

const SHIPPED: &str = include_str!("../../migrations/20261123000001_dlock_locks.sql");

async fn a_table_of_somebody_else_is_refused_and_left_as_it_is(database: Database) {
    let shipped = |from: &str, to: &str| {
        let changed = SHIPPED.replacen(from, to, 1);
        assert_ne!(changed, SHIPPED, "{from}");
        changed
    };
    for wrong in [
        "CREATE TABLE dlock_locks (id INT PRIMARY KEY, title TEXT)".to_owned(),
        shipped("CREATE TABLE", "CREATE UNLOGGED TABLE"),
        shipped("k TEXT COLLATE \"C\"", "k TEXT COLLATE \"POSIX\""),
        shipped("k TEXT COLLATE \"C\"", "k TEXT"),
        shipped("k TEXT COLLATE \"C\"", "k VARCHAR(20) COLLATE \"C\""),
        shipped("NOT NULL PRIMARY KEY", "NOT NULL"),
        shipped("token BIGINT", "token INT"),
        shipped("expires_us BIGINT", "expires_us TIMESTAMPTZ"),
        shipped("    note TEXT COLLATE \"C\" NOT NULL,\n", ""),
        shipped("good_note TEXT COLLATE \"C\"", "good_note TEXT COLLATE \"C\", more INT NOT NULL"),
        "CREATE VIEW dlock_locks AS SELECT 1 AS k".to_owned(),
    ] {
        database.change(&wrong).await;
        let before = made_as(&database).await;
        let error = try_open(&database.url()).await.expect_err(&wrong);
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
        assert!(!error.is_retryable(), "{error}");
        // An operator can make the right table from the text alone.
        assert!(error.to_string().contains(SHIPPED.trim()), "{wrong}: {error}");
        assert_eq!(made_as(&database).await, before);
        let what = if wrong.contains("VIEW") { "VIEW" } else { "TABLE" };
        database.change(&format!("DROP {what} dlock_locks")).await;
    }
    database.store().await;
}

/// The columns of the table, as the server describes them.
async fn made_as(database: &Database) -> Vec<String> {
    let sql = "SELECT c.relpersistence::text || c.relkind::text || a.attname || format_type(a.atttypid, a.atttypmod) \
                   || a.attcollation || a.attnotnull \
               FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
               WHERE c.oid = 'dlock_locks'::regclass AND a.attnum > 0";
    database.lines(sql).await
}

async fn a_table_that_was_changed_later_is_told_by_a_question_after_the_state(database: Database) {
    let store = database.store().await;
    store.ready().await.unwrap();
    for (change, undo) in [
        ("ALTER TABLE dlock_locks SET UNLOGGED", "ALTER TABLE dlock_locks SET LOGGED"),
        ("ALTER TABLE dlock_meta RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO dlock_meta"),
    ] {
        database.change(change).await;
        let error = store.ready().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{change}: {error}");
        assert!(error.to_string().contains("CREATE TABLE dlock_"), "{change}: {error}");
        database.change(undo).await;
        store.ready().await.unwrap();
    }
    database.change("DROP TABLE dlock_locks").await;
    let error = store.look(&key(&database, "a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
}

async fn tables_of_the_shipped_files_are_dlocks_own(database: Database) {
    database.migrate().await;
    database.store().await.ready().await.unwrap();
}

async fn programs_that_start_together_make_the_tables_once(database: Database) {
    let (url, mut starting) = (database.url(), Vec::new());
    for _ in 0..8 {
        let url = url.clone();
        starting.push(tokio::spawn(async move { try_open(&url).await }));
    }
    for one in starting {
        one.await.unwrap().unwrap();
    }
    let tables = database.number("SELECT count(*) FROM pg_class WHERE relname LIKE 'dlock%' AND relkind = 'r'").await;
    assert_eq!(tables, 3);
}
