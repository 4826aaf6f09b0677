//! The wait queue when its sessions, its waiters or its holders go away.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Exchange, Queue, Released, Signal, Standing};
use dlock_store::background;
use dlock_testkit::holds::{confirm, stand, take, token, wait};
use dlock_testkit::wait_until;

use super::kit::{Database, TTL};
use super::support::{EXPIRE, abandon, attempt, is_refused};
use super::wait_queue::{granted, hold_with_turn, join_queue, pass, served, wait_for_long};

row_cases! {
    a_waiter_that_is_dropped_leaves_its_place_and_the_row_is_not_taken_for_it
    a_waiter_that_is_abandoned_leaves_its_place
    a_waiter_that_is_granted_the_lock_and_abandoned_holds_nothing
    a_waiter_on_a_runtime_that_stands_still_is_undone_by_our_own_thread
    a_waiter_whose_session_is_killed_gets_the_lock_later
    a_turn_whose_session_is_killed_does_not_free_the_row
    a_release_that_finds_its_session_killed_frees_the_row
    waiters_get_the_lock_of_a_holder_that_has_died
    waiters_get_the_lock_of_a_holder_that_stands_still
    waiters_for_which_there_is_no_session_get_the_lock
    a_wait_that_is_over_leaves_nothing
    a_store_that_is_closed_leaves_no_idle_session
}

/// For waits that must end.
const LIMIT: Duration = Duration::from_secs(60);
/// For leases that must not end while a test waits for something else.
const LONG: Duration = Duration::from_secs(600);

async fn is_empty(database: &Database) {
    wait_until("no session is in a queue", async || {
        database.waiting_sessions().await.is_empty() && database.turn_sessions().await.is_empty()
    })
    .await
    .unwrap();
}

async fn a_waiter_that_is_dropped_leaves_its_place_and_the_row_is_not_taken_for_it(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (_, wake) = join_queue(&database, &other, "a").await;
    // As when its process dies: nobody abandons its claim.
    drop(wake);
    wait_until("its place is free", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    is_empty(&database).await;
    assert_eq!(database.held().await, [""; 0]);
    let next = attempt(&one, &database.claim("a", TTL)).await.unwrap();
    assert!(token(&next.expect("held for a waiter that is gone")) > token(&hold));
}

async fn a_waiter_that_is_abandoned_leaves_its_place(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (claim, wake) = join_queue(&database, &other, "a").await;
    abandon(&other, &claim).await;
    wait_until("its place is free", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    drop(wake);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    is_empty(&database).await;
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_waiter_that_is_granted_the_lock_and_abandoned_holds_nothing(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (claim, wake) = join_queue(&database, &other, "a").await;
    one.release(&hold).await.unwrap();
    wait_until("the row is taken", async || database.held().await.len() == 1).await.unwrap();
    abandon(&other, &claim).await;
    drop(wake);
    assert_eq!(database.held().await, [""; 0]);
    is_empty(&database).await;
}

async fn a_waiter_on_a_runtime_that_stands_still_is_undone_by_our_own_thread(database: Database) {
    let (one, other) = (database.store().await, Arc::new(database.store().await));
    let hold = hold_with_turn(&database, &one, "a").await;
    let (waits, is_waiting) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (asking, claim, database) = (other.clone(), database.claim("a", LONG), Arc::new(database));
    let (by, of) = (claim.clone(), database.clone());
    let blocked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let wake = wait_for_long(&asking, &by).await;
            wait_until("it is in the queue", async || !of.waiting_sessions().await.is_empty()).await.unwrap();
            waits.send(()).unwrap();
            may_go_on.recv().unwrap();
            drop(wake);
        });
    });
    tokio::task::block_in_place(|| is_waiting.recv()).unwrap();
    let undoing = other.clone();
    background().unwrap().run(async move { undoing.abandon(&claim).await }).await.unwrap().unwrap();
    wait_until("its place is free", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    one.release(&hold).await.unwrap();
    is_empty(&database).await;
    assert_eq!(database.held().await, [""; 0]);
    go_on.send(()).unwrap();
    tokio::task::block_in_place(|| blocked.join()).unwrap();
}

async fn a_waiter_whose_session_is_killed_gets_the_lock_later(database: Database) {
    let (one, other) = (database.store().await, Arc::new(database.store().await));
    let hold = hold_with_turn(&database, &one, "a").await;
    let (waiting, claim) = (other.clone(), database.claim("a", TTL));
    let waits = tokio::spawn(async move { wait(&*waiting, &claim, LIMIT).await });
    for _ in 0..2 {
        wait_until("it is in the queue", async || !database.waiting_sessions().await.is_empty()).await.unwrap();
        database.end_session(&database.waiting_sessions().await[0]).await;
    }
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let next = waits.await.unwrap();
    assert!(token(&next) > token(&hold));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

async fn a_turn_whose_session_is_killed_does_not_free_the_row(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    for is_passed in [false, true] {
        let mut hold = hold_with_turn(&database, &one, "a").await;
        database.end_session(&database.turn_sessions().await[0]).await;
        is_refused(&other, &database.claim("a", TTL)).await;
        assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        // The next waiter has the turn at once, and waits for the row.
        let wake = stand(&other, &database.claim("a", TTL)).await;
        wait_until("the next one has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
        is_refused(&one, &database.claim("a", TTL)).await;
        if is_passed {
            // The row cannot be passed on over a session that has ended.
            let until = dlock::Clock::system().now().after(TTL);
            let next = database.claim("a", TTL);
            let (released, answer) = one.release_to(&hold, &next, until).await.unwrap();
            assert_eq!((released, answer.is_none()), (Released::Released, true));
        } else {
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        }
        assert!(matches!(confirm(&one, &hold).await, Standing::Lost), "a release that freed nothing");
        let next = granted(wake).await;
        assert!(token(&next) > token(&hold));
        hold = pass(&database, &other, &next, "a").await.expect("the row was not passed on");
        assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
        is_empty(&database).await;
    }
}

async fn a_release_that_finds_its_session_killed_frees_the_row(database: Database) {
    let store = database.store().await;
    let hold = hold_with_turn(&database, &store, "a").await;
    assert!(database.end_sessions().await > 0);
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(database.held().await, [""; 0]);
}

async fn waiters_get_the_lock_of_a_holder_that_has_died(database: Database) {
    let (one, other, third) = (database.store().await, database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (_, second) = join_queue(&database, &other, "a").await;
    let (_, behind) = join_queue(&database, &third, "a").await;
    // Its process is gone, and with it the session with the turn. The row is still held.
    drop((hold, one));
    wait_until("the second one has the turn", async || database.waiting_sessions().await.len() == 1).await.unwrap();
    is_refused(&third, &database.claim("a", TTL)).await;
    database.change(EXPIRE).await;
    // A waiter may have lost its place meanwhile, so either of them may be the first.
    tokio::join!(served(&other, second), served(&third, behind));
    is_empty(&database).await;
}

async fn waiters_get_the_lock_of_a_holder_that_stands_still(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (claim, wake) = join_queue(&database, &other, "a").await;
    // Its session still has the turn, as when its process is stopped.
    database.change(EXPIRE).await;
    // The engine asks again now and then, although it waits for news.
    let next = wait(&other, &claim, LIMIT).await;
    drop(wake);
    assert!(token(&next) > token(&hold));
    wait_until("its place is free", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
    is_empty(&database).await;
    assert_eq!(database.held().await, [""; 0]);
}

async fn waiters_for_which_there_is_no_session_get_the_lock(database: Database) {
    let (one, other) = (database.store().await, Arc::new(database.store_with("max_connections=2").await));
    let keys: Vec<_> = (0..6).map(|number| number.to_string()).collect();
    let mut holds = Vec::new();
    let mut waits = Vec::new();
    for text in &keys {
        holds.push(take(&one, &database.claim(text, TTL)).await);
        let (waiting, claim) = (other.clone(), database.claim(text, TTL));
        // Until it has joined, so that the first two have the sessions.
        let first = stand(&*waiting, &claim).await;
        waits.push(tokio::spawn(async move {
            let _first = first;
            let hold = wait(&*waiting, &claim, LIMIT).await;
            waiting.release(&hold).await.unwrap()
        }));
    }
    wait_until("two have their turns", async || database.turn_sessions().await.len() == 2).await.unwrap();
    for hold in holds.iter().rev() {
        assert_eq!(database.turn_sessions().await.len(), 2, "more sessions than may be");
        if hold.claim.key != holds[1].claim.key && hold.claim.key != holds[0].claim.key {
            one.release(hold).await.unwrap();
        }
    }
    for waiter in waits.drain(2..) {
        assert_eq!(waiter.await.unwrap(), Released::Released);
    }
    for (hold, waiter) in holds.iter().zip(waits) {
        one.release(hold).await.unwrap();
        assert_eq!(waiter.await.unwrap(), Released::Released);
    }
}

async fn a_wait_that_is_over_leaves_nothing(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let until = dlock::Clock::system().now().after(Duration::from_millis(300));
    let claim = database.claim("a", TTL);
    let answer = other.try_acquire(&claim, Queue::until(until)).await.unwrap();
    let Attempt::Contended(wake) = answer else { panic!("{answer:?}") };
    let news = wake.signal.expect("a waiter without news").await.unwrap();
    assert!(matches!(news, Signal::Ask), "{news:?}");
    assert!(dlock::Clock::system().now() >= until, "the wait ended early");
    wait_until("its place is free", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    one.release(&hold).await.unwrap();
    is_empty(&database).await;
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_store_that_is_closed_leaves_no_idle_session(database: Database) {
    let store = database.store().await;
    let hold = hold_with_turn(&database, &store, "a").await;
    store.release(&hold).await.unwrap();
    is_empty(&database).await;
    store.close().await;
    wait_until("its sessions are closed", async || database.sessions().await.is_empty()).await.unwrap();
}
