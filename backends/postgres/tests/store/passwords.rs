//! Accounts with passwords (SCRAM).

use dlock::{Clock, ErrorKind};
use dlock_postgres::named;
use dlock_testkit::text_of;

use crate::kit::{Database, try_open};

row_cases! {
    a_wrong_password_is_refused_and_never_shown
    a_password_that_the_client_does_not_send_is_told_and_never_shown
    an_account_that_has_no_connection_left_is_never_shown
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
