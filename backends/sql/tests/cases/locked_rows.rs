//! A row that somebody else's transaction keeps locked, such as that of a person who looks at the table with FOR UPDATE.

use dlock::ErrorKind;
use dlock_contract::{Backend, Keeps, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use futures::future::join_all;

use super::kit::{Database, TTL};
use super::support::attempt;

row_cases! {
    a_locked_row_makes_requests_for_its_key_fail_with_an_error_that_says_so
    a_locked_row_does_not_lose_the_holds_that_are_renewed_together_with_it
    many_locked_rows_do_not_lose_the_holds_that_are_renewed_together_with_them
    a_locked_row_does_not_keep_other_keys_from_being_taken
    a_locked_table_makes_requests_fail_and_nothing_is_done_later
    a_locked_row_that_uses_up_the_connections_is_told_with_the_option_that_helps
}

async fn a_locked_row_makes_requests_for_its_key_fail_with_an_error_that_says_so(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let somebody = database.lock_row(hold.claim.key.as_str()).await;
    let (claim, again) = (database.claim("a", TTL), hold.claim.clone());
    for refused in [
        store.try_acquire(&again, Queue::Leave).await.unwrap_err(),
        store.release(&hold).await.unwrap_err(),
        store.keep(&hold, TTL, None).await.unwrap_err(),
        store.abandon(&hold.claim).await.unwrap_err(),
        store.renew(&[&hold]).await.remove(0).unwrap_err(),
    ] {
        assert_eq!(*refused.kind(), ErrorKind::Outage, "{refused}");
        assert!(refused.is_retryable(), "{refused}");
        assert!(refused.to_string().contains("keeps the lock's row locked"), "{refused}");
    }
    // An attempt of another owner that is refused changes nothing, so servers differ in whether it waits for the row.
    if let Ok(answer) = attempt(&store, &claim).await {
        assert!(answer.is_none());
    }
    drop(somebody);
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_locked_row_does_not_lose_the_holds_that_are_renewed_together_with_it(database: Database) {
    let store = database.store().await;
    let mut holds = Vec::new();
    for text in ["a", "b", "c", "d"] {
        holds.push(take(&store, &database.claim(text, TTL)).await);
    }
    let locked = 1;
    let _somebody = database.lock_row(holds[locked].claim.key.as_str()).await;
    let answers = store.renew(&holds.iter().collect::<Vec<_>>()).await;
    for (place, answer) in answers.into_iter().enumerate() {
        if place == locked {
            assert!(matches!(answer, Err(error) if error.is_retryable()), "a locked row was renewed");
        } else {
            assert!(matches!(answer, Ok(Standing::Renewed(_))), "{place}: {answer:?}");
        }
    }
}

async fn many_locked_rows_do_not_lose_the_holds_that_are_renewed_together_with_them(database: Database) {
    let store = database.store().await;
    let (mut holds, mut somebody) = (Vec::new(), Vec::new());
    for number in 0..12 {
        let hold = take(&store, &database.claim(&number.to_string(), TTL)).await;
        if number < 8 {
            somebody.push(database.lock_row(hold.claim.key.as_str()).await);
        }
        holds.push(hold);
    }
    let answers = store.renew(&holds.iter().collect::<Vec<_>>()).await;
    for (number, answer) in answers.into_iter().enumerate() {
        if number < somebody.len() {
            let error = answer.expect_err("a locked row was renewed");
            assert!(error.is_retryable() && error.to_string().contains("keeps the lock's row locked"), "{error}");
        } else {
            assert!(matches!(answer, Ok(Standing::Renewed(_))), "{number}: {answer:?}");
        }
    }
}

async fn a_locked_table_makes_requests_fail_and_nothing_is_done_later(database: Database) {
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let claim = database.claim("b", TTL);
    let somebody = database.lock_table().await;
    for refused in [
        attempt(&store, &claim).await.unwrap_err(),
        store.release(&hold).await.unwrap_err(),
        store.renew(&[&hold]).await.remove(0).unwrap_err(),
    ] {
        assert!(matches!(refused.kind(), ErrorKind::Outage) && refused.is_retryable(), "{refused}");
        // The server has given up too. One that went on waiting would do it when nobody expects it.
        assert!(refused.to_string().contains("locked"), "{refused}");
    }
    drop(somebody);
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    assert_eq!(database.held().await, [hold.claim.key.as_str()]);
}

async fn a_locked_row_does_not_keep_other_keys_from_being_taken(database: Database) {
    let store = database.store().await;
    // So many rows that no server reads all of them for one.
    for number in 0..40 {
        store.release(&take(&store, &database.claim(&number.to_string(), TTL)).await).await.unwrap();
    }
    let _somebody = database.lock_row(database.claim("20", TTL).key.as_str()).await;
    for number in (0..40).filter(|number| *number != 20) {
        let hold = take(&store, &database.claim(&number.to_string(), TTL)).await;
        assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
    }
    take(&store, &database.claim("new", TTL)).await;
}

async fn a_locked_row_that_uses_up_the_connections_is_told_with_the_option_that_helps(database: Database) {
    let store = database.store_with("max_connections=1").await;
    let other = take(&store, &database.claim("other", TTL)).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    let somebody = database.lock_row(hold.claim.key.as_str()).await;
    let releases = join_all((0..8).map(|_| store.release(&hold)));
    let renewal = confirm(&store, &other);
    let (answers, standing) = futures::join!(releases, renewal);
    assert!(matches!(standing, Standing::Renewed(_)), "a renewal waited for a connection of the callers'");
    let mut texts: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err()).collect();
    assert!(texts.iter().all(|error| error.is_retryable()), "{texts:?}");
    let exhausted: Vec<_> = texts.extract_if(.., |error| error.to_string().contains("max_connections")).collect();
    assert!(!exhausted.is_empty() && exhausted.iter().all(|error| !error.may_have_left()), "{exhausted:?}");
    assert!(texts.iter().all(|error| error.to_string().contains("keeps the lock's row locked")), "{texts:?}");
    drop(somebody);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}
