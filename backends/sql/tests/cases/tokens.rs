//! Tokens, and rows that dlock cannot have written.

use dlock::ErrorKind;
use dlock_contract::{Backend, Inspect, Listing, Released, Standing};
use dlock_testkit::holds::{confirm, take, token};

use super::kit::{Database, NOW, TTL, bytes};
use super::support::{EXPIRE, attempt, is_refused};

row_cases! {
    a_row_that_was_deleted_is_made_again_with_a_higher_token
    a_row_that_is_deleted_under_a_hold_is_a_loss_and_nothing_else
    a_token_rises_above_one_that_is_ahead_of_the_clock
    a_used_up_counter_is_told_and_does_not_keep_the_lock
    a_token_below_zero_is_mended_or_told
    an_owner_of_another_length_holds_the_lock_until_its_lease_ends
    an_end_of_a_lease_that_cannot_be_is_no_panic
}

async fn a_row_that_was_deleted_is_made_again_with_a_higher_token(database: Database) {
    let store = database.store().await;
    let mut last = 0;
    for _ in 0..5 {
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert!(token(&hold) > last, "{} after {last}", token(&hold));
        last = token(&hold);
        store.release(&hold).await.unwrap();
        database.change("DELETE FROM dlock_locks").await;
    }
}

async fn a_row_that_is_deleted_under_a_hold_is_a_loss_and_nothing_else(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let lost = take(&one, &database.claim("a", TTL)).await;
    database.change("DELETE FROM dlock_locks").await;
    let next = take(&other, &database.claim("a", TTL)).await;
    assert!(token(&next) > token(&lost));
    assert_eq!(confirm(&one, &lost).await, Standing::Lost);
    assert_eq!(one.release(&lost).await.unwrap(), Released::NotOwner);
    one.abandon(&lost.claim).await.unwrap();
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
}

async fn a_token_rises_above_one_that_is_ahead_of_the_clock(database: Database) {
    let store = database.store().await;
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    // As if the server's clock had been an hour ahead.
    database.change("UPDATE dlock_locks SET token = token + 3600000000").await;
    let ahead = database.tokens().await[0];
    for more in 1..4 {
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(i64::try_from(token(&hold)).unwrap(), ahead + more);
        store.release(&hold).await.unwrap();
    }
}

async fn a_used_up_counter_is_told_and_does_not_keep_the_lock(database: Database) {
    let store = database.store().await;
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    for last in [(1_i64 << 53) - 1, 1 << 53, i64::MAX - 1, i64::MAX] {
        database.change(&format!("UPDATE dlock_locks SET token = {last}")).await;
        for _ in 0..2 {
            let claim = database.claim("a", TTL);
            let error = attempt(&store, &claim).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::FenceExhausted, "{last}: {error}");
            assert!(!error.is_retryable(), "{last}: {error}");
            store.abandon(&claim).await.unwrap();
            assert_eq!(database.held().await, [""; 0], "{last}");
        }
    }
    // The row may be mended by hand, as after any loss of rows.
    database.change("DELETE FROM dlock_locks").await;
    take(&store, &database.claim("a", TTL)).await;
}

async fn a_token_below_zero_is_mended_or_told(database: Database) {
    let store = database.store().await;
    let claim = database.claim("a", TTL);
    let hold = take(&store, &claim).await;
    for wrong in [0, -1, i64::MIN] {
        database.change(&format!("UPDATE dlock_locks SET token = {wrong}")).await;
        // Its own: the token of the row is the token of the hold.
        let error = attempt(&store, &claim).await.unwrap_err();
        // MySQL itself refuses a token below zero.
        let is_told = matches!(error.kind(), ErrorKind::CorruptState | ErrorKind::SchemaMismatch);
        assert!(is_told && !error.is_retryable(), "{wrong}: {error}");
        assert!(store.look(&claim.key).await.unwrap().note().is_some());
        database.change(EXPIRE).await;
        // Another owner's is drawn anew.
        let next = take(&store, &database.claim("a", TTL)).await;
        assert!(token(&next) > token(&hold), "{wrong}");
        store.release(&next).await.unwrap();
        take(&store, &claim).await;
    }
}

async fn an_owner_of_another_length_holds_the_lock_until_its_lease_ends(database: Database) {
    let store = database.store().await;
    let claim = database.claim("a", TTL);
    store.release(&take(&store, &claim).await).await.unwrap();
    for owner in ["", "00", "ffff27", "0000000000000000000000000000"] {
        let garbage = bytes(owner);
        database
            .change(&format!(
                "UPDATE dlock_locks SET owner = {garbage}, note = 'who?', hold = 'none', expires_us = {NOW} + 30000000"
            ))
            .await;
        is_refused(&store, &database.claim("a", TTL)).await;
        let holder = store.look(&claim.key).await.unwrap().holders.remove(0);
        assert!(holder.id.is_none() && holder.lease_left.is_some(), "{holder:?}");
        let page = store.list(&Listing::of(database.name.clone())).await.unwrap();
        assert_eq!(page.locks, std::slice::from_ref(&claim.key));
        database.change(EXPIRE).await;
        store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    }
}

async fn an_end_of_a_lease_that_cannot_be_is_no_panic(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let key = &hold.claim.key;
    // A hold that never ends by itself. An operator can break it, since its hold id is in the row.
    database.change(&format!("UPDATE dlock_locks SET expires_us = {}", i64::MAX)).await;
    is_refused(&store, &database.claim("a", TTL)).await;
    assert!(store.look(key).await.unwrap().holders[0].lease_left.is_some());
    // One that ended before all time.
    database.change(&format!("UPDATE dlock_locks SET expires_us = {}", i64::MIN)).await;
    assert!(store.look(key).await.unwrap().holders.is_empty());
    take(&store, &database.claim("a", TTL)).await;
    // A lease without an owner is nobody's.
    database.change(&format!("UPDATE dlock_locks SET owner = NULL, expires_us = {NOW} + 30000000")).await;
    assert!(store.look(key).await.unwrap().holders.is_empty());
    take(&store, &database.claim("a", TTL)).await;
}
