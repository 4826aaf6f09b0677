//! Tables that are not dlock's, under its names.

use dlock::ErrorKind;

use super::kit::{Database, try_open};

row_cases! {
    a_table_of_somebody_else_is_refused_and_left_as_it_is
    a_table_that_was_changed_later_is_told_by_a_question_after_the_state
    tables_of_the_shipped_files_are_dlocks_own
}

const SHIPPED: &str = include_str!("../../../migrations/20261123000001_dlock_locks.sql");

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
    ] {
        database.change(&wrong).await;
        let before = made_as(&database).await;
        let error = try_open(&database.url()).await.expect_err(&wrong);
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
        assert!(!error.is_retryable(), "{error}");
        let text = error.to_string();
        // An operator can make the right table from the text alone.
        assert!(text.contains("dlock_locks") && text.contains(SHIPPED.trim()), "{wrong}: {text}");
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

/// The columns of the table, as the server describes them.
async fn made_as(database: &Database) -> Vec<String> {
    let sql = "SELECT CONCAT_WS(' ', column_name, column_type, column_key, collation_name) \
               FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'dlock_locks' \
               ORDER BY ordinal_position";
    database.lines(sql).await
}

async fn a_table_that_was_changed_later_is_told_by_a_question_after_the_state(database: Database) {
    use dlock_contract::Backend;
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

async fn tables_of_the_shipped_files_are_dlocks_own(database: Database) {
    use dlock_contract::Backend;
    database.migrate().await;
    database.store().await.ready().await.unwrap();
}
