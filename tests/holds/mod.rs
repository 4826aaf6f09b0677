//! What the tests of several backends do with holds.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;

use dlock::{Attempt, Backend, Claim, Hold, Stand, Standing};

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
