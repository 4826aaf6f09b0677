//! How long a place in the wait queue and a pushed grant last, and how often a waiter asks.

use std::time::Duration;

/// For how long a lock is handed to a waiter that has not spoken yet: so long a silent one holds up the line. Its first
/// renewal makes it a full ttl.
pub(crate) const GRANT_LIMIT: Duration = Duration::from_secs(1);

/// How long a place in line lasts without a new request: a few of the slow polls.
pub(crate) const PLACE_LEASE: Duration = Duration::from_secs(5);

/// When to ask again without any news: as the present lease ends, and often enough to hear of a push that was lost.
pub(crate) fn slow_poll(left: Duration) -> Duration {
    let jitter = Duration::from_micros(fastrand::u64(1_000..20_000));
    GRANT_LIMIT.mul_f64(0.8 + 0.2 * fastrand::f64()).min(left.saturating_add(jitter))
}

/// How long a place lasts without a new request. Shorter than an exclusive lock's, since here one that is gone keeps
/// others out while there is room for them.
pub(crate) const SHARED_PLACE_LEASE: i64 = 3000;

/// How often to ask where the server cannot push.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// The same for one of many.
pub(crate) fn poll() -> Duration {
    POLL.mul_f64(0.5 + fastrand::f64())
}
