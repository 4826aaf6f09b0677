//! The wait queue: its order, and that nobody polls meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock_contract::{Attempt, Backend, Claim, Exchange, Hold, Keeps, Periods, Queue, Released, RunEnd, Signal, Wake};
use dlock_store::background;
use dlock_testkit::holds::{claim_on, stand, take, token, until};
use dlock_testkit::{Proxy, wait_until};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::kit::{Database, KEEPS_ITS_PLACE, Store, TTL, try_open};
use super::support::{EXPIRE, abandon, attempt, is_refused};

row_cases! {
    a_lock_is_passed_on_in_one_store_while_waiters_of_another_store_send_nothing
    waiters_of_several_stores_are_served_in_the_order_in_which_they_came
    at_most_eight_holds_in_a_row_go_to_one_store_while_another_one_waits
    a_store_passes_a_lock_on_as_often_as_it_likes_while_nobody_else_waits
    a_store_that_has_just_released_a_lock_waits_behind_the_others
    a_holder_that_never_waited_hands_the_lock_to_the_first_waiter
    a_release_over_another_runtime_frees_the_row_and_the_turn
    a_hold_with_a_turn_that_is_kept_or_recorded_leaves_the_queue
    two_databases_have_wait_queues_of_their_own
}

/// Longer than a test waits: a lease that ends by itself would end the wait for it too.
const LONG: Duration = Duration::from_secs(600);

/// The hold that a waiter is handed.
pub(crate) async fn granted(mut wake: Wake) -> Hold {
    let signal = wake.signal.take().expect("a waiter without news");
    let news = tokio::time::timeout(Duration::from_secs(60), signal).await.expect("no news for a minute");
    match news.unwrap() {
        Signal::Granted(hold) => hold,
        Signal::Ask => panic!("the waiter has to ask by itself"),
    }
}

/// Waits for the hold that a waiter is handed, releases it at once, and returns its token.
pub(crate) async fn served(store: &Store, wake: Wake) -> u64 {
    let hold = granted(wake).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    token(&hold)
}

/// A hold that was granted in a turn, and still has the turn.
pub(crate) async fn hold_with_turn(database: &Database, store: &Store, text: &str) -> Hold {
    let other = database.store().await;
    let first = take(&other, &database.claim(text, LONG)).await;
    let wake = stand(store, &database.claim(text, LONG)).await;
    assert_eq!(other.release(&first).await.unwrap(), Released::Released);
    let hold = granted(wake).await;
    other.close().await;
    assert_eq!(database.turn_sessions().await.len(), 1);
    hold
}

/// Waits for longer than any case does: a waiter that is forgotten must not leave by itself.
pub(crate) async fn wait_for_long(store: &Store, claim: &Arc<Claim>) -> Wake {
    let until = dlock::Clock::system().now().after(TTL * 100);
    match store.try_acquire(claim, Queue::until(until)).await.unwrap() {
        Attempt::Contended(wake) => wake,
        other => panic!("{other:?}"),
    }
}

/// Waits behind a holder that has the turn.
pub(crate) async fn join_queue(database: &Database, store: &Store, text: &str) -> (Arc<Claim>, Wake) {
    let before = database.waiting_sessions().await;
    let claim = database.claim(text, LONG);
    let wake = wait_for_long(store, &claim).await;
    // By session, and not by count: a waiter of before may come to the front meanwhile.
    let waits = async || database.waiting_sessions().await.iter().any(|session| !before.contains(session));
    wait_until("the waiter is in the queue", waits).await.unwrap();
    (claim, wake)
}

/// Passes a hold on to the next caller of its store. The wake is that of a caller that has to wait.
pub(crate) async fn pass(database: &Database, store: &Store, hold: &Hold, text: &str) -> Result<Hold, Wake> {
    let until = dlock::Clock::system().now().after(TTL);
    let (released, answer) = store.release_to(hold, &database.claim(text, TTL), until).await.unwrap();
    assert_eq!(released, Released::Released);
    match answer {
        Some(Attempt::Acquired(next)) => {
            assert!(token(&next) > token(hold));
            Ok(next)
        }
        Some(Attempt::Contended(wake)) => Err(wake),
        other => panic!("{other:?}"),
    }
}

async fn a_lock_is_passed_on_in_one_store_while_waiters_of_another_store_send_nothing(database: Database) {
    let proxy = Proxy::start(database.addr()).unwrap();
    let (one, other) = (database.store().await, try_open(&database.url_at(proxy.port())).await.unwrap());
    let mut hold = hold_with_turn(&database, &one, "a").await;
    let began = Instant::now();
    let (_, wake) = join_queue(&database, &other, "a").await;
    let connections = proxy.connections();
    proxy.keep();
    for _ in 0..6 {
        hold = pass(&database, &one, &hold, "a").await.expect("the row was not passed on");
    }
    let kept = proxy.kept();
    assert!(began.elapsed() > KEEPS_ITS_PLACE || kept.iter().all(|&kept| kept == 0), "the waiter sent {kept:?} bytes");
    assert_eq!(proxy.connections(), connections);
    drop(wake);
}

async fn waiters_of_several_stores_are_served_in_the_order_in_which_they_came(database: Database) {
    let one = database.store().await;
    let mut hold = hold_with_turn(&database, &one, "a").await;
    let (mut line, mut owners, began) = (FuturesUnordered::new(), Vec::new(), Instant::now());
    for _ in 0..4 {
        let store = database.store().await;
        let (claim, wake) = join_queue(&database, &store, "a").await;
        owners.push(claim.owner);
        line.push(async { (store, granted(wake).await) });
    }
    let mut holder = one;
    for owner in owners {
        assert_eq!(holder.release(&hold).await.unwrap(), Released::Released);
        let (store, next) = line.next().await.unwrap();
        assert!(next.claim.owner == owner || began.elapsed() > KEEPS_ITS_PLACE, "not the first one in the queue");
        assert!(token(&next) > token(&hold));
        (hold, holder) = (next, store);
    }
    assert_eq!(holder.release(&hold).await.unwrap(), Released::Released);
    wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
}

async fn at_most_eight_holds_in_a_row_go_to_one_store_while_another_one_waits(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let mut hold = hold_with_turn(&database, &one, "a").await;
    let began = Instant::now();
    let (_, waits) = join_queue(&database, &other, "a").await;
    for _ in 1..8 {
        hold = pass(&database, &one, &hold, "a").await.expect("fewer than eight holds");
    }
    let is_first = match pass(&database, &one, &hold, "a").await {
        Err(ninth) => {
            let (second, ninth) = tokio::join!(served(&other, waits), served(&one, ninth));
            second < ninth
        }
        Ok(_) => false,
    };
    assert!(is_first || began.elapsed() > KEEPS_ITS_PLACE, "more than eight holds while another store waits");
}

async fn a_store_passes_a_lock_on_as_often_as_it_likes_while_nobody_else_waits(database: Database) {
    let one = database.store().await;
    let mut hold = hold_with_turn(&database, &one, "a").await;
    for _ in 0..30 {
        hold = pass(&database, &one, &hold, "a").await.expect("nobody else waits");
        is_refused(&one, &database.claim("a", TTL)).await;
    }
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_store_that_has_just_released_a_lock_waits_behind_the_others(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    for _ in 0..10 {
        let hold = hold_with_turn(&database, &one, "a").await;
        let began = Instant::now();
        // It remembers for a second that others want the lock.
        let is_late = || began.elapsed() >= Duration::from_secs(1);
        let (_, waits) = join_queue(&database, &other, "a").await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        // At once, so that it meets the row before the waiter does.
        match one.try_acquire(&database.claim("a", TTL), until()).await.unwrap() {
            Attempt::Contended(behind) => {
                let (second, third) = tokio::join!(served(&other, waits), served(&one, behind));
                assert!(second < third || is_late(), "not behind the waiter");
            }
            Attempt::Acquired(next) => {
                assert!(is_late(), "it overtook the waiter");
                assert_eq!(one.release(&next).await.unwrap(), Released::Released);
                served(&other, waits).await;
            }
            Attempt::AlreadyRun => panic!("a claim without a period"),
        }
    }
}

async fn a_holder_that_never_waited_hands_the_lock_to_the_first_waiter(database: Database) {
    let (one, other, third) = (database.store().await, database.store().await, database.store().await);
    for _ in 0..3 {
        let first = take(&one, &database.claim("a", TTL)).await;
        let wake = stand(&other, &database.claim("a", TTL)).await;
        wait_until("the waiter has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
        let (_, behind) = join_queue(&database, &third, "a").await;
        one.release(&first).await.unwrap();
        let second = granted(wake).await;
        assert!(token(&second) > token(&first));
        other.release(&second).await.unwrap();
        third.release(&granted(behind).await).await.unwrap();
        // A caller that asks only for the row finds it free.
        let free = attempt(&one, &database.claim("a", TTL)).await.unwrap().expect("the row is free");
        one.release(&free).await.unwrap();
    }
}

async fn a_release_over_another_runtime_frees_the_row_and_the_turn(database: Database) {
    let store = Arc::new(database.store().await);
    let hold = hold_with_turn(&database, &store, "a").await;
    let releasing = store.clone();
    // As when a guard is dropped.
    let released = background().unwrap().run(async move { releasing.release(&hold).await });
    assert_eq!(released.await.unwrap().unwrap(), Released::Released);
    assert_eq!(database.held().await, [""; 0]);
    wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
}

async fn a_hold_with_a_turn_that_is_kept_or_recorded_leaves_the_queue(database: Database) {
    let store = database.store().await;
    for is_kept in [true, false] {
        let hold = hold_with_turn(&database, &store, "a").await;
        let ended =
            if is_kept { store.keep(&hold, TTL, None).await } else { store.end_run(&hold, RunEnd::Failed).await };
        assert_eq!(ended.unwrap(), Released::Released);
        wait_until("the queue is left", async || database.turn_sessions().await.is_empty()).await.unwrap();
        assert_eq!(database.held().await.len(), usize::from(is_kept));
        database.change(EXPIRE).await;
    }
}

async fn two_databases_have_wait_queues_of_their_own(database: Database) {
    let elsewhere = database.beside().await;
    let (here, there) = (database.store().await, elsewhere.store().await);
    let claim = database.claim("a", TTL);
    let hold = hold_with_turn(&database, &here, "a").await;
    // The same key there: its queue is empty, so its waiter has the turn at once.
    let first = take(&there, &claim_on(&claim.key, TTL, |_| ())).await;
    let waiter = claim_on(&claim.key, TTL, |_| ());
    let wake = stand(&there, &waiter).await;
    wait_until("both have their turns", async || elsewhere.turn_sessions().await.len() == 1).await.unwrap();
    assert_eq!(database.turn_sessions().await.len(), 1);
    there.release(&first).await.unwrap();
    there.release(&granted(wake).await).await.unwrap();
    here.release(&hold).await.unwrap();
    abandon(&here, &claim).await;
}
