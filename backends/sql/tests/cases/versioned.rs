//! Version columns in tables of the user's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock::{Conflict, ErrorKind, optimistic};
use sqlx::{Connection, Row};

use super::kit::{Client, Database, SET_REMAINING, Versioned};

row_cases! {
    a_write_changes_the_row_and_raises_its_version
    a_second_writer_meets_a_conflict_and_changes_nothing
    a_row_that_was_deleted_is_a_conflict
    a_value_that_stays_as_it_was_is_no_conflict
    a_row_that_was_made_anew_is_a_conflict_unless_its_versions_begin_anew_too
    a_key_of_several_rows_is_refused
    a_version_of_another_type_is_told
    writers_that_meet_never_sell_more_than_there_is
}

const STOCK: Versioned = Versioned::new("stock", "id", "version");

async fn stock(database: &Database, remaining: i64) -> Client {
    database
        .change("CREATE TABLE stock (id BIGINT PRIMARY KEY, remaining BIGINT NOT NULL, version BIGINT NOT NULL)")
        .await;
    put(database, remaining, "1").await;
    database.connect().await
}

async fn put(database: &Database, remaining: i64, version: &str) {
    database.change(&format!("INSERT INTO stock (id, remaining, version) VALUES (7, {remaining}, {version})")).await;
}

async fn rows(database: &Database) -> Vec<String> {
    database.lines("SELECT CONCAT(remaining, ' ', version) FROM stock ORDER BY id").await
}

async fn a_write_changes_the_row_and_raises_its_version(database: Database) {
    let mut conn = stock(&database, 5).await;
    for remaining in [4_i64, 3] {
        let read = STOCK.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
        assert_eq!(read.row.get::<i64, _>(0), remaining + 1);
        STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(remaining)).await.unwrap();
    }
    assert_eq!(rows(&database).await, ["3 3"]);
    assert!(STOCK.read(&mut conn, "remaining", 8_i64).await.unwrap().is_none());
}

async fn a_second_writer_meets_a_conflict_and_changes_nothing(database: Database) {
    let mut conn = stock(&database, 5).await;
    let read = STOCK.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
    STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(4_i64)).await.unwrap();
    let late = STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(3_i64)).await;
    let error = late.unwrap_err();
    assert!(*error.kind() == ErrorKind::Conflict && error.is_conflict(), "{error}");
    assert!(error.to_string().contains("stock"), "{error}");
    assert_eq!(rows(&database).await, ["4 2"]);
}

async fn a_row_that_was_deleted_is_a_conflict(database: Database) {
    let mut conn = stock(&database, 5).await;
    let read = STOCK.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
    database.change("DELETE FROM stock").await;
    let late = STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(4_i64)).await;
    assert_eq!(*late.unwrap_err().kind(), ErrorKind::Conflict);
}

/// Servers count the rows that were changed, or those that were found, as the client asks them.
async fn a_value_that_stays_as_it_was_is_no_conflict(database: Database) {
    let mut conn = stock(&database, 5).await;
    let read = STOCK.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
    STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(5_i64)).await.unwrap();
    assert_eq!(rows(&database).await, ["5 2"]);
}

async fn a_row_that_was_made_anew_is_a_conflict_unless_its_versions_begin_anew_too(database: Database) {
    let mut conn = stock(&database, 5).await;
    for (first, is_conflict) in [("1", false), (Versioned::FIRST_VERSION, true)] {
        database.change("DELETE FROM stock").await;
        put(&database, 5, first).await;
        let read = STOCK.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
        database.change("DELETE FROM stock").await;
        put(&database, 100, first).await;
        let late = STOCK.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(4_i64)).await;
        assert_eq!(late.is_err(), is_conflict, "{first}: {late:?}");
    }
}

async fn a_key_of_several_rows_is_refused(database: Database) {
    let mut conn = stock(&database, 5).await;
    database.change("INSERT INTO stock VALUES (8, 5, 1)").await;
    let by_remaining = Versioned::new("stock", "remaining", "version");
    let mut transaction = conn.begin().await.unwrap();
    let change = by_remaining.write(&mut transaction, 5_i64, 1, SET_REMAINING, |query| query.bind(4_i64)).await;
    let error = change.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
    assert!(error.to_string().contains("2 rows of stock have one remaining"), "{error}");
    transaction.rollback().await.unwrap();
    assert_eq!(rows(&database).await, ["5 1", "5 1"]);
}

async fn a_version_of_another_type_is_told(database: Database) {
    database.change("CREATE TABLE stock (id BIGINT PRIMARY KEY, remaining BIGINT, version VARCHAR(9))").await;
    database.change("INSERT INTO stock VALUES (7, 5, 'one'), (8, 5, NULL)").await;
    let mut conn = database.connect().await;
    for id in [7_i64, 8] {
        let error = STOCK.read(&mut conn, "remaining", id).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
        assert!(error.to_string().contains("version of stock"), "{error}");
    }
    let error = Versioned::new("missing", "id", "version").read(&mut conn, "remaining", 7_i64).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
}

#[derive(Debug)]
enum SellError {
    SoldOut,
    Lock(dlock::Error),
}

impl Conflict for SellError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_conflict())
    }
}

impl From<dlock::Error> for SellError {
    fn from(error: dlock::Error) -> Self {
        Self::Lock(error)
    }
}

#[optimistic(retries = 1000, backoff = "1ms..5ms")]
async fn sell(conn: &mut Client, runs: &AtomicUsize) -> Result<i64, SellError> {
    runs.fetch_add(1, Ordering::Relaxed);
    let read = STOCK.read(conn, "remaining", 7_i64).await?.ok_or(SellError::SoldOut)?;
    let remaining: i64 = read.row.get(0);
    if remaining == 0 {
        return Err(SellError::SoldOut);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    STOCK.write(conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(remaining - 1)).await?;
    Ok(remaining)
}

async fn writers_that_meet_never_sell_more_than_there_is(database: Database) {
    const STOCKED: i64 = 100;
    const SELLERS: usize = 4;
    let (mut sellers, runs) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    stock(&database, STOCKED).await.close().await.unwrap();
    for _ in 0..SELLERS {
        let (mut conn, runs) = (database.connect().await, runs.clone());
        sellers.push(tokio::spawn(async move {
            let mut sold = Vec::new();
            loop {
                match sell(&mut conn, &runs).await {
                    Ok(number) => sold.push(number),
                    Err(SellError::SoldOut) => return sold,
                    Err(SellError::Lock(error)) => panic!("{error}"),
                }
            }
        }));
    }
    let mut sold = Vec::new();
    for seller in sellers {
        sold.extend(seller.await.unwrap());
    }
    sold.sort_unstable();
    assert_eq!(sold, (1..=STOCKED).collect::<Vec<_>>());
    assert_eq!(rows(&database).await, ["0 101"]);
    // Each seller has one run that found nothing left. All others sold or met a conflict.
    assert!(runs.load(Ordering::Relaxed) > sold.len() + SELLERS, "no writers have met: {runs:?}");
}
