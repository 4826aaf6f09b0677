//! How long a place in the wait queue and a pushed grant last, and how often a waiter asks.

use std::time::Duration;

/// The longest lease of a lock that was handed to a waiter, until the waiter's first renewal sets the full ttl. A waiter
/// that is gone blocks the queue for this time.
pub(crate) const GRANT_LIMIT: Duration = Duration::from_secs(1);

/// How long a place in the wait queue lasts without a new request: a few of the slow polls.
pub(crate) const PLACE_LEASE: Duration = Duration::from_secs(5);

/// How long a waiter sleeps without news before it asks again: until the present lease has ended, and one second at most,
/// in case a push was lost.
pub(crate) fn slow_poll(left: Duration) -> Duration {
    let jitter = Duration::from_micros(fastrand::u64(1_000..20_000));
    GRANT_LIMIT.mul_f64(0.8 + 0.2 * fastrand::f64()).min(left.saturating_add(jitter))
}

/// Like [`PLACE_LEASE`], for a lock that several may hold. It is shorter, because a waiter that has gone keeps others
/// out although they could have the lock.
pub(crate) const SHARED_PLACE_LEASE: i64 = 3000;

/// How often a waiter asks if the server cannot push.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The pause of one waiter among many, with jitter.
pub(crate) fn poll() -> Duration {
    POLL_INTERVAL.mul_f64(0.5 + fastrand::f64())
}
