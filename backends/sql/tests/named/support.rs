//! Small steps of the cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::{Clock, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Error, Hold, Queue, Released, Result};
use dlock_testkit::holds::{claim_on, take_against, token};
use dlock_testkit::wait_until;

use crate::named_kit::{Store, TTL, open_at};

/// Takes the lock as soon as the server gives it, and says how long that took.
pub(crate) async fn take_soon(store: &Store, claim: &Arc<Claim>) -> (Hold, Duration) {
    let started = Instant::now();
    loop {
        if let Attempt::Acquired(hold) = store.try_acquire(claim, Queue::Leave).await.unwrap() {
            return (hold, started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the lock was never freed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn until(wait: Duration) -> Queue {
    Queue::until(Clock::system().now().after(wait))
}

/// A request that is waited for as long as the engine waits for a release.
pub(crate) async fn in_time<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    let waited = tokio::time::timeout(Duration::from_secs(2), request).await;
    waited.unwrap_or_else(|_| Err(Error::outage("no answer")))
}

/// One lock from its grant to its end, by stores with this URL, in a namespace of its own.
pub(crate) async fn named_cycle(url: &str, text: &str) {
    let (one, other) = (open_at(url).await, open_at(url).await);
    let key = LockKey::new("named-cycle", Key::new().value(text)).unwrap();
    let claim = || claim_on(&key, TTL, |_| ());
    let hold = take_against(&one, &other, &claim()).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released, "{text}");
    let (next, _) = take_soon(&other, &claim()).await;
    assert!(token(&next) > token(&hold), "{text}");
    assert_eq!(other.release(&next).await.unwrap(), Released::Released, "{text}");
}

/// Releases as often as it takes, as the engine does.
pub(crate) async fn until_released(store: &impl Backend, hold: &Hold) {
    wait_until("the release is answered", async || match in_time(store.release(hold)).await {
        Ok(released) => {
            assert_eq!(released, Released::Released, "nobody else has had the lock");
            true
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    })
    .await
    .unwrap();
}
