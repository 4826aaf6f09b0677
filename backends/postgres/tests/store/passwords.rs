//! Accounts with passwords (SCRAM).

use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Released};
use dlock_postgres::named;
use dlock_testkit::holds::take;
use dlock_testkit::text_of;

use crate::kit::{Database, TTL, try_open};

row_cases! {
    a_password_may_have_any_character
    a_wrong_password_is_refused_and_never_shown
    a_password_that_the_client_does_not_send_is_told_and_never_shown
    an_account_that_has_no_connection_left_is_never_shown
}

async fn a_password_may_have_any_character(database: Database) {
    for (number, (password, encoded)) in [
        ("c@n/a:r?y#%", "c%40n%2Fa%3Ar%3Fy%23%25"),
        ("with blank", "with%20blank"),
        ("plus+and&more=", "plus%2Band%26more%3D"),
        ("\"double'' quotes\\", "%22double%27%20quotes%5C"),
        ("geheim\u{e9}\u{4e2d}", "geheim%C3%A9%E4%B8%AD"),
        ("[1,2]", "%5B1%2C2%5D"),
    ]
    .into_iter()
    .enumerate()
    {
        let account = format!("p{number}_{:08x}", fastrand::u32(..));
        database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD '{password}'")).await;
        database.change(&format!("GRANT CREATE ON SCHEMA public TO {account}")).await;
        let store = try_open(&database.url_of(&format!("{account}:{encoded}"))).await;
        let store = store.unwrap_or_else(|error| panic!("{password}: {error}"));
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        assert!(!format!("{store:?}").contains(&account), "{store:?}");
        database.change("DROP TABLE dlock_locks, dlock_breaks, dlock_meta").await;
    }
}

async fn a_wrong_password_is_refused_and_never_shown(database: Database) {
    let account = format!("canary_{:08x}", fastrand::u32(..));
    database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'right'")).await;
    for wrong in ["", ":", ":wrong-secret", ":right%20"] {
        let error = try_open(&database.url_of(&format!("{account}{wrong}"))).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (&ErrorKind::PermissionDenied, Some("28P01")), "{wrong}: {error}");
        let text = text_of(&error);
        assert!(!text.contains("canary") && !text.contains("secret"), "{text}");
    }
    // The right one, of an account that may not make the tables.
    let error = try_open(&database.url_of(&format!("{account}:right"))).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("CREATE TABLE dlock_locks"), "{error}");
}

async fn a_password_that_the_client_does_not_send_is_told_and_never_shown(database: Database) {
    let account = format!("p_{:08x}", fastrand::u32(..));
    database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'geheim\u{1F512}'")).await;
    let error = try_open(&database.url_of(&format!("{account}:geheim%F0%9F%94%92"))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("emoji"), "{error}");
    let text = text_of(&error);
    assert!(!text.contains("geheim") && !text.contains('\u{1F512}') && !text.contains("1f512"), "{text}");
}

/// The server names the account in its error.
async fn an_account_that_has_no_connection_left_is_never_shown(database: Database) {
    let account = format!("canary_{:08x}", fastrand::u32(..));
    database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'right' CONNECTION LIMIT 0")).await;
    let url = database.url_of(&format!("{account}:right"));
    let error = named::open(&url, &Clock::system()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some("53300")), "{error}");
    assert!(!text_of(&error).contains("canary"), "{}", text_of(&error));
}
