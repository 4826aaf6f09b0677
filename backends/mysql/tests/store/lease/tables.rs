//! Tables that are not dlock's, under its names.

use dlock::ErrorKind;
use dlock_contract::Backend;

use super::cases::foreign_tables::{
    each_way_refuses_tables_of_somebody_else, each_way_uses_tables_of_a_migration_tool, is_mismatch,
};
use super::kit::{Database, try_open};
use crate::row_kit;

named_cases! {
    on both:
    a_table_of_somebody_else_is_refused_and_left_as_it_is
    a_table_of_somebody_else_is_refused_by_each_way_that_has_one_of_its_name
    a_table_that_was_changed_later_is_told_by_a_question_after_the_state
    tables_of_a_migration_tool_serve_every_way_of_an_account_that_makes_none
}

const SHIPPED: &str = include_str!("../../../migrations/20261123000001_dlock_locks.sql");

const SHIPPED_OF_WAYS: [(&str, &str); 3] = [
    ("dlock_breaks", include_str!("../../../migrations/20261123000002_dlock_breaks.sql")),
    ("dlock_rows", include_str!("../../../migrations/20261125000001_dlock_rows.sql")),
    ("dlock_row_keys", include_str!("../../../migrations/20261125000002_dlock_row_keys.sql")),
];

async fn a_table_of_somebody_else_is_refused_and_left_as_it_is(database: Database) {
    let shipped = |from: &str, to: &str| {
        let changed = SHIPPED.replacen(from, to, 1);
        assert_ne!(changed, SHIPPED, "{from}");
        changed
    };
    for wrong in [
        "CREATE TABLE dlock_locks (id INT PRIMARY KEY, title VARCHAR(20)) ENGINE=InnoDB".to_owned(),
        shipped("ENGINE=InnoDB", "ENGINE=MyISAM"),
        shipped("k VARBINARY(255)", "k VARCHAR(255) COLLATE utf8mb4_general_ci"),
        shipped("k VARBINARY(255)", "k VARBINARY(64)"),
        shipped("k VARBINARY(255) NOT NULL PRIMARY KEY", "k VARBINARY(255) NOT NULL"),
        shipped("token BIGINT", "token INT"),
        shipped("expires_us BIGINT", "expires_us TIMESTAMP"),
        shipped("    note VARBINARY(256) NOT NULL,\n", ""),
        shipped("good_note VARBINARY(256)", "good_note VARBINARY(256), more INT NOT NULL"),
        shipped(" GENERATED ALWAYS AS (expires_us DIV 86400000000) STORED", ""),
        shipped(",\n    KEY expires_day (expires_day, k)", ""),
        shipped("KEY expires_day (expires_day, k)", "KEY expires_day (k, expires_day)"),
    ] {
        database.change(&wrong).await;
        let before = made_as(&database).await;
        is_mismatch(try_open(&database.url()).await, &wrong, SHIPPED);
        assert_eq!(made_as(&database).await, before);
        assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks").await, 0);
        database.change("DROP TABLE dlock_locks").await;
    }
    // Memory tables have no long columns, so this one differs in more than its engine.
    database.change("CREATE TABLE dlock_meta (name VARBINARY(128) PRIMARY KEY) ENGINE=MEMORY").await;
    let error = try_open(&database.url()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    assert!(error.to_string().contains("dlock_meta"), "{error}");
}

/// Tables that only some of the ways have.
async fn a_table_of_somebody_else_is_refused_by_each_way_that_has_one_of_its_name(database: Database) {
    let url = database.url();
    let open = async |name: &str| match name {
        "dlock_breaks" => try_open(&url).await.map(drop),
        _ => row_kit::open(&url).await.map(drop),
    };
    let other_form = ("ENGINE=InnoDB", "ENGINE=MyISAM");
    each_way_refuses_tables_of_somebody_else(&database, &SHIPPED_OF_WAYS, other_form, open).await;
}

/// The columns of the table, as the server describes them.
async fn made_as(database: &Database) -> Vec<String> {
    let sql = "SELECT CONCAT_WS(' ', column_name, column_type, column_key, collation_name) \
               FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'dlock_locks' \
               ORDER BY ordinal_position";
    database.lines(sql).await
}

async fn a_table_that_was_changed_later_is_told_by_a_question_after_the_state(database: Database) {
    let store = database.store().await;
    store.ready().await.unwrap();
    database.change("ALTER TABLE dlock_locks ENGINE=MyISAM").await;
    let error = store.ready().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    database.change("DROP TABLE dlock_locks").await;
    let error = store.ready().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
    assert!(error.to_string().contains("CREATE TABLE dlock_locks"), "{error}");
    let error = store.look(&super::kit::key(&database, "a")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
}

async fn tables_of_a_migration_tool_serve_every_way_of_an_account_that_makes_none(database: Database) {
    each_way_uses_tables_of_a_migration_tool(&database, &[("SELECT, INSERT, UPDATE", "*")]).await;
}
