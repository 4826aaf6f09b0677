//! Accounts, as MySQL and MariaDB tell of them.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;

use super::cases::accounts::undone_after_a_former_account;
use super::kit::{Database, TTL, try_open};

named_cases! {
    on both:
    a_right_that_is_missing_is_named
    rights_on_the_whole_database_are_enough
    a_session_of_a_former_account_keeps_no_abandon_from_its_work_and_is_told
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

/// Its last statement has no answer, and the present account may not end it.
async fn a_session_of_a_former_account_keeps_no_abandon_from_its_work_and_is_told(database: Database) {
    let [former, present] = ["former", "present"].map(|name| format!("{name}_{:08x}", fastrand::u32(..)));
    for account in [&former, &present] {
        database.make_account(account, "right").await;
    }
    assert!(undone_after_a_former_account(&database, [former, present]).await);
}
