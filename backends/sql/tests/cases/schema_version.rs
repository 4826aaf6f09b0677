//! The version of the tables. A program that knows another one must not lock beside those that use them.

use dlock::ErrorKind;
use dlock_contract::Backend;
use dlock_testkit::holds::take;

use super::kit::{Database, TTL, try_open};
use crate::{named_kit, row_kit};

row_cases! {
    tables_of_another_version_are_refused_by_every_way
}

async fn tables_of_another_version_are_refused_by_every_way(database: Database) {
    let store = database.store().await;
    store.ready().await.unwrap();
    let versions = async || database.lines("SELECT number FROM dlock_meta WHERE name = 'schema'").await;
    assert_eq!(versions().await, ["1"]);
    for (other, remedy) in [(2, "update this program"), (0, "update the tables")] {
        database.change(&format!("UPDATE dlock_meta SET number = {other} WHERE name = 'schema'")).await;
        let url = database.url();
        for refused in [
            try_open(&url).await.map(drop),
            named_kit::try_open_at(&url).await.map(drop),
            row_kit::open(&url).await.map(drop),
            store.ready().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
            for part in ["dlock_meta", &format!("schema {other}"), "schema 1", remedy] {
                assert!(error.to_string().contains(part), "{part}: {error}");
            }
            assert!(!error.is_retryable(), "{error:?}");
        }
        assert_eq!(versions().await, [other.to_string()]);
    }
    database.change("UPDATE dlock_meta SET number = 1 WHERE name = 'schema'").await;
    store.ready().await.unwrap();
    take(&try_open(&database.url()).await.unwrap(), &database.claim("a", TTL)).await;
}
