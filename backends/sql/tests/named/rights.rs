//! Rights that an account loses while its store is open.

use dlock::ErrorKind;
use dlock_contract::Backend;

use crate::named_kit::{Database, ROWS_DRAW_TOKENS, open_at};

named_cases! {
    a_right_that_is_taken_away_is_told_by_the_probe
}

async fn a_right_that_is_taken_away_is_told_by_the_probe(database: Database) {
    drop(open_at(&database.url()).await);
    let mut rights = vec![("SELECT, INSERT, UPDATE", "dlock_named"), ("SELECT, INSERT, UPDATE", "dlock_meta")];
    if !ROWS_DRAW_TOKENS {
        rights.extend([("SELECT, INSERT, UPDATE", "dlock_read_write"), ("UPDATE", "SEQUENCE dlock_tokens")]);
    }
    let url = database.account_with(&rights).await;
    tells_of_a_right(&database, &url, &open_at(&url).await, "dlock_named").await;
}

/// The probe of this account's store tells that the right to update the table was taken away, and that it was given back.
pub(crate) async fn tells_of_a_right(database: &Database, url: &str, store: &dyn Backend, table: &str) {
    store.ready().await.unwrap();
    let (account, _) = url.split_once("://").unwrap().1.split_once(['@', ':']).unwrap();
    database.revoke(account, &("UPDATE", table)).await;
    let error = store.ready().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    database.grant(account, &("UPDATE", table)).await;
    store.ready().await.unwrap();
}
