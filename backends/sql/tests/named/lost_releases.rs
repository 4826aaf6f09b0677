//! Releases whose answers the network swallows, from the first one of a session on: what is said of them, and when the server
//! frees the lock.

use std::sync::Arc;
use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Hold, Released, Result, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{Mode, Proxy, wait_until};

use super::support::{in_time, until_released};
use crate::named_kit::{Database, Store, open_at, session_of};

named_cases! {
    a_first_release_whose_answers_are_swallowed_ends_its_session
    a_dropped_hold_whose_answers_are_swallowed_ends_its_session
    a_swallowed_release_is_asked_for_again_until_the_lock_is_free
    an_abandon_says_nothing_of_a_release_that_was_swallowed
    a_release_to_the_next_caller_that_was_swallowed_keeps_the_lock_for_nobody
    a_connection_that_the_network_has_forgotten_is_ended_over_another_one
    a_late_answer_to_a_release_costs_no_neighbour_its_lock
}

/// The server ends no session for its silence while a test runs.
const LONG: Duration = Duration::from_secs(3600);
/// Answers are swallowed; requests and ends of connections arrive.
const NO_ANSWERS: Mode = Mode::Blackhole { to_server: false, to_client: true };

async fn behind_a_proxy(database: &Database) -> (Proxy, Arc<Store>) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    (proxy, Arc::new(open_at(&url).await))
}

/// Releases once, as the engine does, in a network that swallows the answer.
async fn release_in_vain(store: &Store, hold: &Hold) {
    refused(in_time(store.release(hold)).await);
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.expect_err("the server's answer was swallowed");
    assert!(error.is_retryable(), "{error}");
}

/// Releases as often as it takes, as the engine does. The lock is free then.
async fn release_again(store: &Store, hold: &Hold, database: &Database) {
    until_released(store, hold).await;
    assert_eq!(session_of(database, "a").await, None, "the release was answered while the server kept the lock");
    assert_eq!(store.release(hold).await.unwrap(), Released::NotOwner, "the holder has heard of the end");
}

async fn a_first_release_whose_answers_are_swallowed_ends_its_session(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let hold = take(&*store, &database.claim("a", LONG)).await;
    proxy.set(NO_ANSWERS);
    release_in_vain(&store, &hold).await;
    // The network stays as it is, and the release was asked for once.
    wait_until("the server frees the lock", async || session_of(&database, "a").await.is_none()).await.unwrap();
    proxy.set(Mode::Pass);
    release_again(&store, &hold, &database).await;
}

async fn a_dropped_hold_whose_answers_are_swallowed_ends_its_session(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let hold = take(&*store, &database.claim("a", LONG)).await;
    proxy.set(NO_ANSWERS);
    drop(hold);
    wait_until("the server frees the lock", async || session_of(&database, "a").await.is_none()).await.unwrap();
}

/// The server does not even hear of the connection's end.
async fn a_swallowed_release_is_asked_for_again_until_the_lock_is_free(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let hold = take(&*store, &database.claim("a", LONG)).await;
    proxy.set(Mode::BLACKHOLE);
    for _ in 0..3 {
        release_in_vain(&store, &hold).await;
    }
    assert!(session_of(&database, "a").await.is_some(), "the server has heard of the release: nothing is proven");
    proxy.set(Mode::Pass);
    release_again(&store, &hold, &database).await;
}

async fn an_abandon_says_nothing_of_a_release_that_was_swallowed(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let claim = database.claim("a", LONG);
    let hold = take(&*store, &claim).await;
    proxy.set(Mode::BLACKHOLE);
    release_in_vain(&store, &hold).await;
    refused(in_time(store.abandon(&claim)).await);
    proxy.set(Mode::Pass);
    wait_until("the abandon is done", async || in_time(store.abandon(&claim)).await.is_ok()).await.unwrap();
    assert_eq!(session_of(&database, "a").await, None, "the abandon was answered while the server kept the lock");
}

/// The server has given the lock to the session again, for the next caller, and nobody hears of it.
async fn a_release_to_the_next_caller_that_was_swallowed_keeps_the_lock_for_nobody(database: Database) {
    let (watching, until) = (open_at(&database.url()).await, Clock::system().now().after(LONG));
    for _ in 0..8 {
        let (proxy, store) = behind_a_proxy(&database).await;
        let exchange = store.exchange().unwrap();
        // The first one of a session may have to prepare its statement.
        let [first, second, next] = [(); 3].map(|()| database.claim("a", LONG));
        let hold = take(&*store, &first).await;
        let Ok((_, Some(Attempt::Acquired(hold)))) = exchange.release_to(&hold, &second, until).await else {
            panic!("nobody else wants it")
        };
        proxy.set(NO_ANSWERS);
        let exchanged = async { refused(in_time(exchange.release_to(&hold, &next, until)).await) };
        let silenced = async {
            let has_it = async || watching.look(&next.key).await.unwrap().note() == Some(&next.note);
            wait_until("the next caller has the lock", has_it).await.unwrap();
            // The end of the connection does not arrive either.
            proxy.keep();
        };
        tokio::join!(exchanged, silenced);
        let is_proof = session_of(&database, "a").await.is_some();
        proxy.set(Mode::Pass);
        release_again(&store, &hold, &database).await;
        store.abandon(&next).await.unwrap();
        let after = take(&watching, &database.claim("a", LONG)).await;
        assert_eq!(watching.release(&after).await.unwrap(), Released::Released);
        // On a slow machine the session may have ended before.
        if is_proof {
            return;
        }
    }
    panic!("the server heard of the session's end each time: nothing is proven");
}

async fn a_connection_that_the_network_has_forgotten_is_ended_over_another_one(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let hold = take(&*store, &database.claim("a", LONG)).await;
    // New connections work, and the server hears nothing more of the older ones.
    proxy.keep();
    release_in_vain(&store, &hold).await;
    release_again(&store, &hold, &database).await;
}

async fn a_late_answer_to_a_release_costs_no_neighbour_its_lock(database: Database) {
    let (proxy, store) = behind_a_proxy(&database).await;
    let (hold, beside) =
        (take(&*store, &database.claim("a", LONG)).await, take(&*store, &database.claim("beside", LONG)).await);
    let session = session_of(&database, "beside").await;
    assert_eq!(session_of(&database, "a").await, session, "the locks do not share a session: nothing is proven");
    // Later than a session without other locks is ended.
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_secs(8) });
    release_in_vain(&store, &hold).await;
    release_in_vain(&store, &hold).await;
    proxy.set(Mode::Pass);
    release_again(&store, &hold, &database).await;
    assert!(matches!(confirm(&*store, &beside).await, Standing::Renewed(_)), "a neighbour lost its lock");
    assert_eq!(session_of(&database, "beside").await, session);
    assert_eq!(store.release(&beside).await.unwrap(), Released::Released);
}
