//! Sessions that end on one side alone: what of them comes later, and when the server frees their locks.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Backend, Hold, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{Mode, Proxy, wait_until};

use super::half_broken::HalfBroken;
use super::support::{take_soon, until};
use crate::named_kit::{Database, Store, open_at, session_of};

named_cases! {
    a_request_that_arrives_after_its_abandon_takes_nothing
    a_request_that_was_sent_again_takes_nothing_when_the_first_one_arrives
    a_lock_whose_connection_broke_on_our_side_alone_is_free_at_once
    a_waiter_whose_host_is_silent_keeps_the_lock_for_no_ttl
}

/// The server ends no session for its silence while a test runs.
const LONG: Duration = Duration::from_secs(3600);

/// The connection over which a store ends its sessions in the server.
const MONITOR: usize = 0;

/// A store whose connections can break on one side, and the number of the one by which it takes locks.
async fn half_broken(database: &Database) -> (HalfBroken, Arc<Store>, usize) {
    let relay = HalfBroken::start(database.addr()).await;
    let store = Arc::new(open_at(&database.url_at(relay.port)).await);
    let first = take(&*store, &database.claim("a", LONG)).await;
    assert_eq!(store.release(&first).await.unwrap(), Released::Released);
    let line = relay.lines() - 1;
    (relay, store, line)
}

/// Somebody else can take the lock, also after the late request.
async fn assert_free(relay: &HalfBroken, line: usize, database: &Database) {
    relay.deliver(line).await;
    // It arrives within a moment.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(session_of(database, "a").await, None, "the late request has taken the lock");
}

async fn a_request_that_arrives_after_its_abandon_takes_nothing(database: Database) {
    let (relay, store, line) = half_broken(&database).await;
    let claim = database.claim("a", LONG);
    relay.keep(line);
    {
        let mut asked = store.try_acquire(&claim, Queue::Leave);
        let left = async {
            while !relay.keeps_some(line) {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
        };
        tokio::select! {
            _ = &mut asked => panic!("nothing was delivered"),
            () = left => {}
        }
    }
    // So that the store cannot end the session at once. An abandon that did not wait for that would say too early that all is done.
    relay.keep(MONITOR);
    relay.break_off(line);
    wait_until("it is undone", async || store.abandon(&claim).await.is_ok()).await.unwrap();
    assert_free(&relay, line, &database).await;
}

async fn a_request_that_was_sent_again_takes_nothing_when_the_first_one_arrives(database: Database) {
    let (relay, store, line) = half_broken(&database).await;
    relay.keep(line);
    let claim = database.claim("a", LONG);
    // As the engine does: a request that has failed is undone before the next one.
    let asks = async {
        loop {
            match store.try_acquire(&claim, Queue::Leave).await {
                Ok(attempt) => return attempt,
                Err(_) => wait_until("it is undone", async || store.abandon(&claim).await.is_ok()).await.unwrap(),
            }
        }
    };
    let breaks = async {
        wait_until("it has left", async || relay.keeps_some(line)).await.unwrap();
        // So that the store cannot end the session at once.
        relay.keep(MONITOR);
        relay.break_off(line);
    };
    let (Attempt::Acquired(hold), ()) = tokio::join!(asks, breaks) else { panic!("nobody has it") };
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    assert_free(&relay, line, &database).await;
}

async fn a_lock_whose_connection_broke_on_our_side_alone_is_free_at_once(database: Database) {
    let (relay, store, line) = half_broken(&database).await;
    let hold = take(&*store, &database.claim("a", LONG)).await;
    relay.break_off(line);
    assert!(session_of(&database, "a").await.is_some(), "the server was told of the end: nothing is proven");
    assert_eq!(confirm(&*store, &hold).await, Standing::Lost);
    take_soon(&open_at(&database.url()).await, &database.claim("a", LONG)).await;
}

/// The server grants the lock to each of them in turn, and does not see that nobody is there.
async fn a_waiter_whose_host_is_silent_keeps_the_lock_for_no_ttl(database: Database) {
    let (near, other) = (open_at(&database.url()).await, Arc::new(open_at(&database.url()).await));
    let before = take(&near, &database.claim("a", LONG)).await;
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let mut silent = Vec::new();
    for count in 1..=2 {
        let far = Arc::new(open_at(&url).await);
        silent.push(stand(&far, &database).await);
        database.until_wait(count).await;
    }
    proxy.set(Mode::BLACKHOLE);
    near.release(&before).await.unwrap();
    // One that is there keeps it for the whole ttl.
    let waiting = stand(&other, &database).await;
    let granted = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let hold = granted.expect("a silent waiter keeps the lock").unwrap();
    // The passing of the short limit is what is tested.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(matches!(confirm(&*other, &hold).await, Standing::Renewed(_)));
    silent.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn stand(store: &Arc<Store>, database: &Database) -> tokio::task::JoinHandle<Hold> {
    let claim = database.claim("a", LONG);
    let Attempt::Contended(wake) = store.try_acquire(&claim, until(LONG)).await.unwrap() else { panic!("it is free") };
    let signal = wake.signal.unwrap();
    tokio::spawn(async move {
        match signal.await.unwrap() {
            Signal::Granted(hold) => hold,
            _ => panic!("no hold"),
        }
    })
}
