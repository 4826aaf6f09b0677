//! Accounts, as PostgreSQL tells of them.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;

use crate::kit::{Database, TTL, try_open};

row_cases! {
    an_account_without_the_right_to_use_the_schema_is_refused
    an_account_that_may_make_tables_makes_them
    a_database_that_is_missing_is_told
}

const ALL: [(&str, &str); 3] = [
    ("SELECT, INSERT, UPDATE", "dlock_locks"),
    ("SELECT, INSERT, UPDATE", "dlock_breaks"),
    ("SELECT, INSERT, UPDATE", "dlock_meta"),
];

async fn an_account_without_the_right_to_use_the_schema_is_refused(database: Database) {
    database.migrate().await;
    let url = database.account_with(&ALL).await;
    for table in ["dlock_locks", "dlock_breaks", "dlock_meta"] {
        database.change(&format!("CREATE SCHEMA IF NOT EXISTS aside; ALTER TABLE {table} SET SCHEMA aside")).await;
    }
    let error = try_open(&format!("{url}?schema=aside")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    let (account, _) = url.split_once("://").unwrap().1.split_once(':').unwrap();
    database.change(&format!("GRANT USAGE ON SCHEMA aside TO {account}")).await;
    let store = try_open(&format!("{url}?schema=aside")).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn an_account_that_may_make_tables_makes_them(database: Database) {
    let store = try_open(&database.account_with(&[("CREATE", "SCHEMA public")]).await).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_database_that_is_missing_is_told(database: Database) {
    let error = try_open(&format!("{}_not", database.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
}
