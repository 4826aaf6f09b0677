//! Accounts, as MySQL and MariaDB tell of them.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;

use super::kit::{Database, TTL, try_open};

named_cases! {
    on both:
    a_right_that_is_missing_is_named
    rights_on_the_whole_database_are_enough
}

async fn a_right_that_is_missing_is_named(database: Database) {
    drop(database.store().await);
    for (granted, missing) in [("SELECT, INSERT", "UPDATE"), ("SELECT, UPDATE", "INSERT"), ("SELECT", "INSERT")] {
        let rest = "SELECT, INSERT, UPDATE";
        let url =
            database.account_with(&[(granted, "dlock_locks"), (rest, "dlock_breaks"), (rest, "dlock_meta")]).await;
        let error = try_open(&url).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{granted}: {error}");
        assert!(error.to_string().contains(&format!("table: {missing}")), "{granted}: {error}");
    }
}

async fn rights_on_the_whole_database_are_enough(database: Database) {
    let store = try_open(&database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
