//! Which row a key has.

use std::sync::Arc;

use dlock_contract::{Backend, Claim, Standing};
use dlock_testkit::holds::{confirm, take};

use super::kit::{Database, TTL};
use super::support::is_refused;

row_cases! {
    short_keys_that_are_alike_have_rows_of_their_own
    long_keys_that_are_alike_have_rows_of_their_own
    two_long_keys_with_a_common_beginning_exclude_nobody
    a_row_holds_the_note_the_token_and_the_end_of_the_lease_and_keeps_its_token_when_it_is_free
}

/// Pairs that a collation would fold: case, a blank at the end, an accent, and its two forms in Unicode.
const ALIKE: [&str; 7] = ["a", "A", "a ", "á", "a\u{301}", "a%20", "ä"];

async fn short_keys_that_are_alike_have_rows_of_their_own(database: Database) {
    all_are_held_at_once(&database, ALIKE.map(str::to_owned).to_vec()).await;
}

async fn long_keys_that_are_alike_have_rows_of_their_own(database: Database) {
    let long = |end: &str| format!("{}{end}", "x".repeat(400));
    all_are_held_at_once(&database, ALIKE.map(long).to_vec()).await;
    let names = database.lines("SELECT k FROM dlock_locks").await;
    assert!(names.iter().all(|name| name.len() == 255), "{names:?}");
}

/// Each has a row with its whole key, and none ends another one's hold.
async fn all_are_held_at_once(database: &Database, texts: Vec<String>) {
    let (one, other) = (database.store().await, database.store().await);
    let claims: Vec<Arc<Claim>> = texts.iter().map(|text| database.claim(text, TTL)).collect();
    let mut holds = Vec::new();
    for claim in &claims {
        holds.push(take(&one, claim).await);
    }
    for text in &texts {
        is_refused(&other, &database.claim(text, TTL)).await;
    }
    let mut stored = database.lines("SELECT COALESCE(long_key, k) FROM dlock_locks").await;
    let mut keys: Vec<_> = claims.iter().map(|claim| claim.key.as_str().to_owned()).collect();
    stored.sort();
    keys.sort();
    assert_eq!(stored, keys);
    let first = holds.remove(0);
    one.release(&first).await.unwrap();
    assert_eq!(database.held().await.len(), holds.len());
    for hold in &holds {
        assert!(matches!(confirm(&one, hold).await, Standing::Renewed(_)), "{hold:?}");
    }
}

async fn two_long_keys_with_a_common_beginning_exclude_nobody(database: Database) {
    let store = database.store().await;
    // The beginning of the name is the same, and also the length.
    let common = "y".repeat(1000);
    let one = take(&store, &database.claim(&format!("{common}1"), TTL)).await;
    let two = take(&store, &database.claim(&format!("{common}2"), TTL)).await;
    let names = database.lines("SELECT k FROM dlock_locks").await;
    assert_eq!(names.len(), 2);
    assert_eq!(names[0][..190], names[1][..190]);
    store.release(&one).await.unwrap();
    assert!(matches!(confirm(&store, &two).await, Standing::Renewed(_)));
}

async fn a_row_holds_the_note_the_token_and_the_end_of_the_lease_and_keeps_its_token_when_it_is_free(
    database: Database,
) {
    let store = database.store().await;
    let claim = database.claim("a", TTL);
    let hold = take(&store, &claim).await;
    let token = i64::try_from(hold.token.unwrap().get()).unwrap();
    assert_eq!(database.lines("SELECT note FROM dlock_locks").await, [claim.note.as_str()]);
    assert_eq!(database.tokens().await, [token]);
    let left = database.number(&format!("SELECT expires_us - {} FROM dlock_locks", super::kit::NOW)).await;
    let most = i64::try_from(TTL.as_micros()).unwrap();
    assert!(left > 0 && left <= most, "{left} microseconds are left of {most}");
    store.release(&hold).await.unwrap();
    assert_eq!(database.held().await, [""; 0]);
    assert_eq!(database.tokens().await, [token], "a free lock keeps its row");
}
