//! A disk without room. Rows that are there can be changed; a row that needs room cannot be written.

use std::sync::Arc;

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};

use super::kit::{Database, FILLER, FULL, TTL};
use super::support::attempt;
use crate::{named_kit, row_kit};

cases_on_small_disk! {
    a_full_disk_is_told_grants_nothing_and_loses_nothing
}

async fn a_full_disk_is_told_grants_nothing_and_loses_nothing(database: Database) {
    let store = database.store().await;
    let named = named_kit::open(&database).await;
    let rows = row_kit::open(&database.url()).await.unwrap();
    // A namespace is locked in one way.
    let claim = |way: &str, text: &str| claim_on(&LockKey::new(way, Key::new().value(text)).unwrap(), TTL, |_| ());
    let first = take(&named, &claim("named", "first")).await;
    assert_eq!(named.release(&first).await.unwrap(), Released::Released);
    let held_row = take(&rows, &claim("row", "held")).await;
    let hold = take(&store, &database.claim("held", TTL)).await;
    fill_disk(&database).await;
    assert!(matches!(confirm(&rows, &held_row).await, Standing::Renewed(_)));
    // Its transaction would keep PostgreSQL from using the place of old versions of rows again.
    assert_eq!(rows.release(&held_row).await.unwrap(), Released::Released);
    // A page has room for some rows still.
    let (mut held, mut told) = (Vec::new(), None);
    for number in 0..500 {
        match attempt(&store, &database.claim(&format!("{number:0>150}"), TTL)).await {
            Ok(Some(hold)) => held.push(hold),
            Ok(None) => panic!("nobody has the lock {number}"),
            Err(error) => {
                told = Some((number, error));
                break;
            }
        }
    }
    let (number, error) = told.expect("no row needed room");
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some(FULL)), "{error}");
    assert!(error.is_retryable() && error.to_string().contains("disk is full"), "{error}");
    assert_eq!(database.held().await.len(), held.len() + 1, "something was granted beside the error");
    // Those that are held go on, and end.
    for hold in held.iter().chain([&hold]) {
        assert!(matches!(confirm(&store, hold).await, Standing::Renewed(_)));
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
    let again = take(&store, &database.claim("held", TTL)).await;
    assert!(token(&again) > token(&hold));
    // A lock whose token cannot be written is given back.
    let refused_name = until_one_is_refused(&named, |text| claim("named", text)).await;
    let refused_row = until_one_is_refused(&rows, |text| claim("row", text)).await;
    database.change("DROP TABLE filler").await;
    let hold = take(&store, &database.claim(&format!("{number:0>150}"), TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    // These locks were free all the while: another session gets them.
    let other = named_kit::open(&database).await;
    let hold = take(&other, &claim_on(&refused_name, TTL, |_| ())).await;
    assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    let other = row_kit::open(&database.url()).await.unwrap();
    let hold = take(&other, &claim_on(&refused_row, TTL, |_| ())).await;
    assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
}

/// Takes and frees locks until one has no room for its token. Nobody holds that one.
async fn until_one_is_refused(store: &impl Backend, claim: impl Fn(&str) -> Arc<Claim>) -> LockKey {
    for number in 0..500 {
        let claim = claim(&format!("{number:0>150}"));
        match store.try_acquire(&claim, Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => drop(store.release(&hold).await.unwrap()),
            Ok(answer) => panic!("{answer:?}"),
            Err(error) => {
                assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some(FULL)), "{error}");
                assert!(error.is_retryable() && error.to_string().contains("disk is full"), "{error}");
                assert!(store.look(&claim.key).await.unwrap().holders.is_empty());
                return claim.key.clone();
            }
        }
    }
    panic!("no lock needed room");
}

/// Leaves no room on the disk.
pub(super) async fn fill_disk(database: &Database) {
    database.change(FILLER).await;
    fill(database, |_| needs_room()).await;
    // A large table grows by large steps, and the first pages of new ones have room still.
    fill(database, |number| format!("CREATE TABLE filler_{number} AS SELECT 'x' AS more")).await;
}

/// A statement that fails on a full disk. Its rows fit into a page: MariaDB aborts where a longer text finds no room.
pub(super) fn needs_room() -> String {
    format!("INSERT INTO filler VALUES ('{}')", vec!["x".repeat(3000); 50].join("'), ('"))
}

/// Runs statements until one fails.
async fn fill(database: &Database, statement: impl Fn(u32) -> String) {
    let mut conn = database.connect().await;
    for number in 0..10_000 {
        if let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(statement(number))).execute(&mut conn).await {
            return eprintln!("after {number} statements: {error}");
        }
    }
    panic!("the disk was never full");
}
