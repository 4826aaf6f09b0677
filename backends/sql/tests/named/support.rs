//! Small steps of the cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Claim, Hold, Queue};

use crate::named_kit::Store;

/// Takes the lock as soon as the server gives it, and says how long that took.
pub(crate) async fn take_soon(store: &Store, claim: &Arc<Claim>) -> (Hold, Duration) {
    let started = Instant::now();
    loop {
        if let Attempt::Acquired(hold) = store.try_acquire(claim, Queue::Leave).await.unwrap() {
            return (hold, started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(10), "the lock was never freed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn until(wait: Duration) -> Queue {
    Queue::until(Clock::system().now().after(wait))
}
