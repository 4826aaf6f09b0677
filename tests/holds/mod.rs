//! What the tests of several backends do with holds.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use std::time::Duration;

use dlock::{Attempt, Backend, Claim, Clock, Hold, Signal, Stand, Standing, Wake};
use tokio::task::JoinHandle;

/// Takes a lock that must be free.
pub(crate) async fn take(store: &impl Backend, claim: &Arc<Claim>) -> Hold {
    match store.try_acquire(claim, Stand::No).await.unwrap() {
        Attempt::Acquired(hold) => hold,
        Attempt::Contended(_) => panic!("the lock is held"),
        Attempt::AlreadyRun => panic!("a claim without a period"),
    }
}

/// Renews one hold.
pub(crate) async fn confirm(store: &impl Backend, hold: &Hold) -> Standing {
    store.renew(&[hold]).await.remove(0).unwrap()
}

pub(crate) fn token(hold: &Hold) -> u64 {
    hold.token.unwrap().get()
}

/// Waits for tasks that return the tokens of their holds, and fails if a token was given twice.
pub(crate) async fn assert_all_different(tasks: Vec<JoinHandle<Vec<u64>>>, count: usize) {
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(task.await.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "a token was given twice");
}

pub(crate) fn until() -> Stand {
    Stand::Until(Clock::system().now().after(Duration::from_secs(60)))
}

/// Asks for a lock that is held, and waits for it from now on.
pub(crate) async fn stand(store: &impl Backend, claim: &Arc<Claim>) -> Wake {
    match store.try_acquire(claim, until()).await.unwrap() {
        Attempt::Contended(wake) => wake,
        _ => panic!("no contention"),
    }
}

/// Waits as the core does.
pub(crate) async fn wait(store: &impl Backend, claim: &Arc<Claim>, limit: Duration) -> Hold {
    let clock = Clock::system();
    let end = clock.now().after(limit);
    loop {
        let mut wake = match store.try_acquire(claim, until()).await.unwrap() {
            Attempt::Acquired(hold) => return hold,
            Attempt::Contended(wake) => wake,
            Attempt::AlreadyRun => panic!("already run"),
        };
        assert!(clock.now() < end, "waited too long");
        let again = wake.ask_by.unwrap_or(clock.now()).max(clock.now().after(Duration::from_millis(1)));
        match &mut wake.signal {
            None => clock.sleep_until(again).await,
            Some(signal) => {
                if let Some(Ok(Signal::Granted(hold))) = clock.timeout_at(again, signal).await {
                    return hold;
                }
            }
        }
    }
}
