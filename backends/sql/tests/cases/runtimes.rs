//! Callers on several runtimes, which end or stand still.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dlock_contract::{Backend, Queue, Standing};
use dlock_store::background;
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::{Proxy, drop_after};
use tokio::runtime::{Builder, Runtime};

use super::kit::{Database, try_open};
use super::support::{abandon, attempt};

row_cases! {
    one_store_serves_callers_of_several_runtimes
    callers_whose_runtimes_end_in_the_middle_hold_nothing_once_they_are_undone
    an_attempt_on_a_runtime_that_stands_still_is_undone_by_our_own_thread
    an_attempt_that_was_undone_sends_nothing_more_when_its_runtime_goes_on
    a_runtime_that_stands_still_does_not_keep_its_holds_from_being_renewed
}

/// Longer than a test waits: a lock that a caller has left must not end by itself.
const LONG: Duration = Duration::from_secs(600);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn one_store_serves_callers_of_several_runtimes(database: Database) {
    let (store, database) = (Arc::new(database.store().await), Arc::new(database));
    let threads = (0..4).map(|number| {
        let (store, database) = (store.clone(), database.clone());
        thread::spawn(move || {
            runtime().block_on(async {
                let mut tokens = Vec::new();
                while tokens.len() < 10 {
                    let Some(hold) = attempt(&store, &database.claim("a", LONG)).await.unwrap() else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    assert!(matches!(confirm(&*store, &hold).await, Standing::Renewed(_)), "thread {number}");
                    tokens.push(token(&hold));
                    store.release(&hold).await.unwrap();
                }
                tokens
            })
        })
    });
    let threads: Vec<_> = threads.collect();
    let joined = tokio::task::spawn_blocking(|| threads.into_iter().flat_map(|one| one.join().unwrap()).collect());
    let mut tokens: Vec<u64> = joined.await.unwrap();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 40, "a token was given twice");
}

async fn callers_whose_runtimes_end_in_the_middle_hold_nothing_once_they_are_undone(database: Database) {
    let (store, database) = (Arc::new(database.store().await), Arc::new(database));
    let threads = (0..4).map(|number| {
        let (store, database) = (store.clone(), database.clone());
        thread::spawn(move || {
            let mut claims = Vec::new();
            for round in 0..8 {
                let claim = database.claim(&format!("{number} {}", round % 2), LONG);
                let runtime = runtime();
                let pause = Duration::from_micros(fastrand::u64(0..2000));
                runtime.block_on(drop_after(fastrand::usize(1..12), pause, store.try_acquire(&claim, Queue::Leave)));
                // With it ends the task that drives the connection, wherever it is.
                runtime.shutdown_background();
                claims.push(claim);
            }
            claims
        })
    });
    let threads: Vec<_> = threads.collect();
    let joined = tokio::task::spawn_blocking(|| threads.into_iter().flat_map(|one| one.join().unwrap()).collect());
    let claims: Vec<_> = joined.await.unwrap();
    for claim in &claims {
        abandon(&store, claim).await;
    }
    // The server may still read from a connection that has ended, until its session is gone.
    let ours = try_open(&database.url()).await.unwrap();
    for claim in &claims {
        let hold = take(&ours, &database.claim("probe", LONG)).await;
        ours.release(&hold).await.unwrap();
        abandon(&store, claim).await;
    }
    assert_eq!(database.held().await, [""; 0]);
}

async fn an_attempt_on_a_runtime_that_stands_still_is_undone_by_our_own_thread(database: Database) {
    let store = Arc::new(database.store().await);
    for polls in 1..6 {
        let claim = database.claim("a", LONG);
        let (blocked, is_blocked) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (asking, by) = (store.clone(), claim.clone());
        let standing = thread::spawn(move || {
            runtime().block_on(async {
                // The connection is open, so the request itself is under way soon.
                asking.ready().await.unwrap();
                drop_after(polls, Duration::from_micros(200), asking.try_acquire(&by, Queue::Leave)).await;
                blocked.send(()).unwrap();
                may_go_on.recv().unwrap();
                // The tasks of this runtime get their turn, with what they still had to do.
                asking.ready().await.unwrap();
            });
        });
        tokio::task::block_in_place(|| is_blocked.recv()).unwrap();
        let (undoing, by) = (store.clone(), claim.clone());
        let undone = background().unwrap().run(async move { undoing.abandon(&by).await }).await.unwrap();
        let held = database.held().await;
        assert!(held.is_empty(), "{polls}: after our own thread undid it, {held:?} are held");
        go_on.send(()).unwrap();
        tokio::task::block_in_place(|| standing.join()).unwrap();
        if undone.is_err() {
            // Its answer was not known, so our own thread asks again.
            abandon(&store, &claim).await;
        }
        let next = attempt(&store, &database.claim("a", LONG)).await.unwrap();
        store.release(&next.expect("held by a caller that is gone")).await.unwrap();
    }
}

async fn an_attempt_that_was_undone_sends_nothing_more_when_its_runtime_goes_on(database: Database) {
    let proxy = Arc::new(Proxy::start(database.addr()).unwrap());
    let store = Arc::new(try_open(&database.url_at(proxy.port())).await.unwrap());
    let claim = database.claim("a", LONG);
    let (blocked, is_blocked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (asking, by, network) = (store.clone(), claim.clone(), proxy.clone());
    let standing = thread::spawn(move || {
        runtime().block_on(async {
            asking.ready().await.unwrap();
            let sent = network.sent();
            let mut attempt = asking.try_acquire(&by, Queue::Leave);
            while network.sent() == sent {
                assert!(futures::poll!(attempt.as_mut()).is_pending(), "it has its answer, so nothing is proven");
                tokio::task::yield_now().await;
            }
            drop(attempt);
            blocked.send(()).unwrap();
            may_go_on.recv().unwrap();
            // The tasks of this runtime get their turn.
            asking.ready().await.unwrap();
        });
    });
    tokio::task::block_in_place(|| is_blocked.recv()).unwrap();
    let (undoing, by) = (store.clone(), claim.clone());
    background().unwrap().run(async move { undoing.abandon(&by).await }).await.unwrap().unwrap_err();
    proxy.keep();
    go_on.send(()).unwrap();
    tokio::task::block_in_place(|| standing.join()).unwrap();
    assert!(proxy.kept().iter().all(|bytes| *bytes == 0), "it goes on: {:?}", proxy.kept());
    abandon(&store, &claim).await;
    assert_eq!(database.held().await, [""; 0]);
}

async fn a_runtime_that_stands_still_does_not_keep_its_holds_from_being_renewed(database: Database) {
    let store = Arc::new(database.store().await);
    let (taken, is_taken) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (asking, claim) = (store.clone(), database.claim("a", LONG));
    let standing = thread::spawn(move || {
        runtime().block_on(async {
            taken.send(take(&*asking, &claim).await).unwrap();
            may_go_on.recv().unwrap();
        });
    });
    let hold = tokio::task::block_in_place(|| is_taken.recv()).unwrap();
    let renewing = store.clone();
    let renew = async move {
        let standing = confirm(&*renewing, &hold).await;
        renewing.release(&hold).await.unwrap();
        standing
    };
    assert!(matches!(background().unwrap().run(renew).await.unwrap(), Standing::Renewed(_)));
    go_on.send(()).unwrap();
    tokio::task::block_in_place(|| standing.join()).unwrap();
    assert_eq!(database.held().await, [""; 0]);
}
