//! Renewals beside statements of other locks in the same session.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Backend, Queue, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::wait_until;

use crate::named_kit::{Database, TTL, open, session_of};

named_cases! {
    a_renewal_does_not_wait_behind_a_draw_in_its_session
}

/// Somebody keeps the row of another key locked, or all tables.
async fn a_renewal_does_not_wait_behind_a_draw_in_its_session(database: Database) {
    let store = Arc::new(open(&database).await);
    let hold = take(&*store, &database.claim("a", TTL)).await;
    let session = session_of(&database, "a").await;
    let other = database.claim("b", TTL);
    let gate = database.stop_draws(other.key.as_str()).await;
    let asking = tokio::spawn({
        let store = store.clone();
        async move { store.try_acquire(&other, Queue::Leave).await }
    });
    let stands = async || session_of(&database, "b").await == session;
    wait_until("the draw stands in the session of the hold", stands).await.unwrap();
    let mut last = hold.validity.from;
    for _ in 0..3 {
        let renewed = tokio::time::timeout(Duration::from_secs(30), confirm(&*store, &hold)).await;
        let Ok(Standing::Renewed(validity)) = renewed else { panic!("it waits behind the draw: {renewed:?}") };
        assert!(validity.from > last, "it prolongs nothing");
        last = validity.from;
    }
    assert!(stands().await, "the draw has ended: nothing is proven");
    drop(gate);
    // It may have been given up meanwhile.
    let _ = asking.await.unwrap();
    wait_until(
        "its own session is asked again",
        async || matches!(confirm(&*store, &hold).await, Standing::Renewed(validity) if validity.from > last),
    )
    .await
    .unwrap();
}
