//! Releases whose answers the network swallows: what is said of them, and when the server frees the row.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Hold, Queue, Released};
use dlock_testkit::holds::{claim_on, take};
use dlock_testkit::{Mode, Proxy, wait_until};

use crate::named::half_broken::HalfBroken;
use crate::named::support::{in_time, until_released};
use crate::named_kit::key;
use crate::row_kit::{Database, Store, open, open_transactions, transaction_of, waiting_for};

row_lock_cases! {
    a_swallowed_release_is_asked_for_again_until_the_row_is_free
    a_release_after_a_commit_that_was_swallowed_frees_the_row
    a_rollback_whose_answer_is_late_is_no_loss
    a_hold_that_is_dropped_while_the_network_is_silent_frees_the_row
    a_row_whose_record_cannot_be_written_is_free_although_its_session_is_silent
}

/// The server ends no session for its silence while a test runs.
const LONG: Duration = Duration::from_secs(3600);

/// Releases as often as it takes, as the engine does. The row is free then.
async fn release_again(store: &Store, hold: &Hold, database: &Database) {
    until_released(store, hold).await;
    assert_eq!(open_transactions(database).await, 0, "the release was answered while the server kept the row");
    assert_eq!(store.release(hold).await.unwrap(), Released::NotOwner, "the holder has heard of the end");
}

async fn a_swallowed_release_is_asked_for_again_until_the_row_is_free(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open(&url).await.unwrap();
    let hold = take(&store, &claim_on(&key(&database, "a"), LONG, |_| ())).await;
    // The server does not even hear of the connection's end.
    proxy.set(Mode::BLACKHOLE);
    for _ in 0..3 {
        let error = in_time(store.release(&hold)).await.expect_err("the server's answer was swallowed");
        assert!(error.is_retryable(), "{error}");
    }
    assert_eq!(open_transactions(&database).await, 1, "the server has heard of the release: nothing is proven");
    proxy.set(Mode::Pass);
    release_again(&store, &hold, &database).await;
}

async fn a_release_after_a_commit_that_was_swallowed_frees_the_row(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open(&url).await.unwrap();
    let hold = take(&store, &claim_on(&key(&database, "a"), LONG, |_| ())).await;
    drop(transaction_of(&hold).unwrap().conn().await.unwrap());
    proxy.set(Mode::BLACKHOLE);
    store.settle().unwrap().settle(&hold).await.expect_err("the server's answer was swallowed");
    assert_eq!(open_transactions(&database).await, 1, "the server has heard of the commit: nothing is proven");
    in_time(store.release(&hold)).await.expect_err("the server's answer was swallowed");
    proxy.set(Mode::Pass);
    release_again(&store, &hold, &database).await;
}

/// The monitor sees that the transaction has ended, by our own rollback.
async fn a_rollback_whose_answer_is_late_is_no_loss(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open(&url).await.unwrap();
    let hold = take(&store, &claim_on(&key(&database, "a"), LONG, |_| ())).await;
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(350) });
    let released = store.release(&hold).await;
    assert!(!matches!(released, Ok(Released::NotOwner)), "nobody else has had the row");
    proxy.set(Mode::Pass);
    if released.is_err() {
        release_again(&store, &hold, &database).await;
    }
}

/// Nobody releases it, so its session must be ended in the server without that.
async fn a_hold_that_is_dropped_while_the_network_is_silent_frees_the_row(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open(&url).await.unwrap();
    let hold = take(&store, &claim_on(&key(&database, "a"), LONG, |_| ())).await;
    // The server does not even hear of the connection's end.
    proxy.set(Mode::BLACKHOLE);
    drop(hold);
    wait_until("the rollback is swallowed", async || proxy.swallowing() > 0).await.unwrap();
    // The store gives the rollback up, and asks for the end of the session in vain.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(open_transactions(&database).await, 1, "the server has heard of the rollback: nothing is proven");
    proxy.set(Mode::Pass);
    take_soon(&database).await;
}

async fn a_row_whose_record_cannot_be_written_is_free_although_its_session_is_silent(database: Database) {
    let relay = HalfBroken::start(database.addr()).await;
    let store = open(&database.url_at(relay.port)).await.unwrap();
    let claim = || claim_on(&key(&database, "a"), LONG, |_| ());
    // Its connections and its record are there from here on.
    store.release(&take(&store, &claim()).await).await.unwrap();
    let mut somebody = database.connect().await;
    sqlx::raw_sql("BEGIN; SELECT 1 FROM dlock_rows FOR UPDATE").fetch_all(&mut somebody).await.unwrap();
    let late = claim();
    let silences = async {
        waiting_for(&database, "dlock_rows").await;
        (0..relay.lines()).for_each(|line| relay.keep(line));
    };
    let (answer, ()) = tokio::join!(store.try_acquire(&late, Queue::Leave), silences);
    answer.expect_err("its record could not be written");
    drop(somebody);
    take_soon(&database).await;
}

/// Somebody else takes the lock, long before the server ends a session for its silence.
async fn take_soon(database: &Database) {
    let store = open(&database.url()).await.unwrap();
    let claim = claim_on(&key(database, "a"), LONG, |_| ());
    let is_taken = async || matches!(store.try_acquire(&claim, Queue::Leave).await, Ok(Attempt::Acquired(_)));
    wait_until("the row is free", is_taken).await.unwrap();
}
