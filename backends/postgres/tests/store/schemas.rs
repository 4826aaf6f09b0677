//! The schema of the tables.

use dlock::ErrorKind;
use dlock_contract::{Backend, Released, Standing};
use dlock_testkit::holds::{confirm, take};

use crate::cases::support::is_refused;
use crate::kit::{Database, TTL, try_open};
use crate::row_kit;

row_cases! {
    a_store_has_its_tables_in_the_schema_that_its_url_names
    row_locks_have_their_tables_in_the_schema_that_their_url_names
    two_schemas_are_two_stores
    a_schema_that_is_missing_is_told
    a_path_of_schemas_does_not_lead_astray
    shedlock_s_table_in_another_schema_is_named_by_an_error
}

async fn a_store_has_its_tables_in_the_schema_that_its_url_names(database: Database) {
    database.change("CREATE SCHEMA my_locks").await;
    let store = database.store_with("schema=my_locks").await;
    store.ready().await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    let found = database
        .lines("SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename LIKE 'dlock%' ORDER BY 1")
        .await;
    assert_eq!(found, ["my_locks.dlock_breaks", "my_locks.dlock_locks", "my_locks.dlock_meta"]);
    assert_eq!(database.lines("SELECT k FROM my_locks.dlock_locks").await, [hold.claim.key.as_str()]);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn row_locks_have_their_tables_in_the_schema_that_their_url_names(database: Database) {
    database.change("CREATE SCHEMA my_rows").await;
    let store = row_kit::open(&format!("{}?way=row&schema=my_rows", database.url())).await.unwrap();
    store.ready().await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    let found = database
        .lines("SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename LIKE 'dlock%' ORDER BY 1")
        .await;
    assert_eq!(found, ["my_rows.dlock_meta", "my_rows.dlock_row_keys", "my_rows.dlock_rows"]);
    for table in ["dlock_row_keys", "dlock_rows"] {
        assert_eq!(database.lines(&format!("SELECT k FROM my_rows.{table}")).await, [hold.claim.key.as_str()]);
    }
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn two_schemas_are_two_stores(database: Database) {
    database.change("CREATE SCHEMA one; CREATE SCHEMA two").await;
    let (one, two) = (database.store_with("schema=one").await, database.store_with("schema=two").await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    let other = take(&two, &database.claim("a", TTL)).await;
    one.release(&hold).await.unwrap();
    assert!(matches!(confirm(&two, &other).await, Standing::Renewed(_)));
    is_refused(&database.store_with("schema=two").await, &database.claim("a", TTL)).await;
}

async fn a_schema_that_is_missing_is_told(database: Database) {
    let error = try_open(&format!("{}?schema=nowhere", database.url())).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::ConfigInvalid { field: "schema".into() }, "{error}");
}

/// An account may have a schema of its own name, which comes first in its path.
async fn a_path_of_schemas_does_not_lead_astray(database: Database) {
    database.change("CREATE SCHEMA aside").await;
    let store = database.store_with("schema=public").await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    database.change(&format!("ALTER DATABASE {} SET search_path = aside", database.name)).await;
    is_refused(&database.store_with("schema=public").await, &database.claim("a", TTL)).await;
    database.end_sessions().await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
}

async fn shedlock_s_table_in_another_schema_is_named_by_an_error(database: Database) {
    let there = crate::kit::RIGHT_SHEDLOCK[0].replace("shedlock", "scheduler.shedlock");
    database.change(&format!("CREATE SCHEMA scheduler; CREATE SCHEMA mine; {there}")).await;
    let url = format!("{}?layout=shedlock", database.url());
    for more in ["", "&shedlock_create=yes", "&schema=mine"] {
        let error = try_open(&format!("{url}{more}")).await.unwrap_err();
        assert!(error.to_string().contains("`scheduler.shedlock`"), "{more}: {error}");
    }
    for (number, more) in ["&schema=scheduler", "&shedlock_table=scheduler.shedlock"].into_iter().enumerate() {
        let store = try_open(&format!("{url}{more}")).await.unwrap();
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        let names = format!("SELECT name FROM scheduler.shedlock WHERE locked_by <> '' OFFSET {number}");
        assert_eq!(database.lines(&names).await.len(), 1 - number, "{more}");
    }
    assert_eq!(database.lines("SELECT schemaname FROM pg_tables WHERE tablename = 'shedlock'").await, ["scheduler"]);
}
