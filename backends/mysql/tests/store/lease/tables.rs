//! Tables that are not dlock's, under its names.

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, take};

use super::kit::{Database, TTL, try_open};
use crate::row_kit;

row_cases! {
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

/// Tables that only some of the ways have.
async fn a_table_of_somebody_else_is_refused_by_each_way_that_has_one_of_its_name(database: Database) {
    let url = database.url();
    for (name, shipped) in SHIPPED_OF_WAYS {
        let wrong = format!("CREATE TABLE {name} (id INT PRIMARY KEY, title VARCHAR(20))");
        let other_form = shipped.replacen("ENGINE=InnoDB", "ENGINE=MyISAM", 1);
        for wrong in [wrong, other_form] {
            assert_ne!(wrong, shipped);
            database.change(&wrong).await;
            let error = match name {
                "dlock_breaks" => try_open(&url).await.map(drop),
                _ => row_kit::open(&url).await.map(drop),
            };
            let error = error.expect_err(&wrong);
            assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
            assert!(!error.is_retryable() && error.to_string().contains(shipped.trim()), "{wrong}: {error}");
            assert_eq!(database.number(&format!("SELECT COUNT(*) FROM {name}")).await, 0);
            database.change(&format!("DROP TABLE {name}")).await;
        }
    }
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

/// As a deployment does it, before the program with fewer rights starts.
async fn tables_of_a_migration_tool_serve_every_way_of_an_account_that_makes_none(database: Database) {
    let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrator = sqlx::migrate::Migrator::new(files).await.unwrap();
    migrator.run(&mut database.connect().await).await.unwrap();
    let url = database.account_with(&[("SELECT, INSERT, UPDATE", "*")]).await;
    let lease = try_open(&url).await.unwrap();
    lease.ready().await.unwrap();
    let named = dlock_mysql::named::open(&url, &dlock::Clock::system()).await.unwrap();
    named.ready().await.unwrap();
    let rows = row_kit::open(&url).await.unwrap();
    rows.ready().await.unwrap();
    let claim = |way: &str| claim_on(&LockKey::new(way, Key::text("a")).unwrap(), TTL, |_| ());
    assert_eq!(lease.release(&take(&lease, &claim("lease")).await).await.unwrap(), Released::Released);
    assert_eq!(named.release(&take(&named, &claim("named")).await).await.unwrap(), Released::Released);
    assert_eq!(rows.release(&take(&rows, &claim("row")).await).await.unwrap(), Released::Released);
}
