//! Tables that are not dlock's, under its names.

use dlock::ErrorKind;
use dlock_contract::Backend;

use crate::cases::foreign_tables::{
    each_way_refuses_tables_of_somebody_else, each_way_uses_tables_of_a_migration_tool, is_mismatch,
};
use crate::kit::{Database, key, try_open};
use crate::row_kit;

row_cases! {
    a_table_of_somebody_else_is_refused_and_left_as_it_is
    a_table_of_somebody_else_is_refused_by_each_way_that_has_one_of_its_name
    a_table_that_was_changed_later_is_told_by_a_question_after_the_state
    tables_of_a_migration_tool_serve_every_way_of_an_account_that_makes_none
    programs_that_start_together_make_the_tables_once
}

const SHIPPED: &str = include_str!("../../migrations/20261123000001_dlock_locks.sql");

const SHIPPED_OF_WAYS: [(&str, &str); 4] = [
    ("dlock_breaks", include_str!("../../migrations/20261123000002_dlock_breaks.sql")),
    ("dlock_read_write", include_str!("../../migrations/20261124000002_dlock_read_write.sql")),
    ("dlock_rows", include_str!("../../migrations/20261125000001_dlock_rows.sql")),
    ("dlock_row_keys", include_str!("../../migrations/20261125000002_dlock_row_keys.sql")),
];

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
        shipped("expires_us BIGINT", "expires_us NUMERIC"),
        shipped("    note TEXT COLLATE \"C\" NOT NULL,\n", ""),
        shipped("good_note TEXT COLLATE \"C\"", "good_note TEXT COLLATE \"C\", more INT NOT NULL"),
        shipped("GENERATED ALWAYS AS ((expires_us / 86400000000)::integer) STORED", ""),
        shipped("CREATE INDEX dlock_locks_expires_day ON dlock_locks (expires_day, k)", ""),
        shipped("dlock_locks (expires_day, k)", "dlock_locks (k, expires_day)"),
        shipped("dlock_locks (expires_day, k)", "dlock_locks (expires_day, k) WHERE expires_day > 0"),
        "CREATE VIEW dlock_locks AS SELECT 1 AS k".to_owned(),
    ] {
        database.change(&wrong).await;
        let before = made_as(&database).await;
        is_mismatch(try_open(&database.url()).await, &wrong, SHIPPED);
        assert_eq!(made_as(&database).await, before);
        let what = if wrong.contains("VIEW") { "VIEW" } else { "TABLE" };
        database.change(&format!("DROP {what} dlock_locks")).await;
    }
    database.store().await;
}

/// Tables that only some of the ways have.
async fn a_table_of_somebody_else_is_refused_by_each_way_that_has_one_of_its_name(database: Database) {
    let url = database.url();
    let open = async |name: &str| match name {
        "dlock_breaks" => try_open(&url).await.map(drop),
        "dlock_read_write" => dlock_postgres::named::open(&url, &dlock::Clock::system()).await.map(drop),
        _ => row_kit::open(&url).await.map(drop),
    };
    let other_form = ("COLLATE \"C\" NOT NULL", "NOT NULL");
    each_way_refuses_tables_of_somebody_else(&database, &SHIPPED_OF_WAYS, other_form, open).await;
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
    let indexes = database.number("SELECT count(*) FROM pg_indexes WHERE tablename = 'dlock_locks'").await;
    assert_eq!(indexes, 2);
}

/// An account without `CREATE`.
const RIGHTS: [(&str, &str); 2] =
    [("SELECT, INSERT, UPDATE", "ALL TABLES IN SCHEMA public"), ("UPDATE", "SEQUENCE dlock_tokens")];

async fn tables_of_a_migration_tool_serve_every_way_of_an_account_that_makes_none(database: Database) {
    each_way_uses_tables_of_a_migration_tool(&database, &RIGHTS).await;
}
