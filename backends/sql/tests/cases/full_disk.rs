//! A disk without room. Rows that are there can be changed; a row that needs room cannot be written.

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};

use super::kit::{Database, FILLER, FULL, TTL};
use super::support::attempt;
use crate::named_kit;

cases_on_small_disk! {
    a_full_disk_is_told_grants_nothing_and_loses_nothing
}

async fn a_full_disk_is_told_grants_nothing_and_loses_nothing(database: Database) {
    let store = database.store().await;
    let named = named_kit::open(&database).await;
    // A namespace is locked in one way.
    let namespace = format!("{}-named", database.name);
    let named_claim = |text: &str| claim_on(&LockKey::new(&namespace, Key::new().value(text)).unwrap(), TTL, |_| ());
    let first = take(&named, &named_claim("first")).await;
    assert_eq!(named.release(&first).await.unwrap(), Released::Released);
    let hold = take(&store, &database.claim("held", TTL)).await;
    database.change(FILLER).await;
    // Rows that fit into a page: MariaDB aborts where a longer text finds no room.
    let rows = vec!["x".repeat(3000); 50].join("'), ('");
    fill(&database, |_| format!("INSERT INTO filler VALUES ('{rows}')")).await;
    // A large table grows by large steps, and the first pages of new ones have room still.
    fill(&database, |number| format!("CREATE TABLE filler_{number} AS SELECT 'x' AS more")).await;
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
    // A named lock whose token cannot be written is given back.
    let mut told = None;
    for number in 0..500 {
        let claim = named_claim(&format!("{number:0>150}"));
        match named.try_acquire(&claim, Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => drop(named.release(&hold).await.unwrap()),
            Ok(answer) => panic!("{answer:?}"),
            Err(error) => {
                told = Some((claim, error));
                break;
            }
        }
    }
    let (claim, error) = told.expect("no row of a named lock needed room");
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Outage, Some(FULL)), "{error}");
    assert!(named.look(&claim.key).await.unwrap().holders.is_empty());
    database.change("DROP TABLE filler").await;
    let hold = take(&store, &database.claim(&format!("{number:0>150}"), TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    // The number of the lock was free all the while: another session gets it.
    let other = named_kit::open(&database).await;
    let hold = take(&other, &claim_on(&claim.key, TTL, |_| ())).await;
    assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
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
