//! The options of the builder: those of the attribute, as methods.

use std::time::Duration;

use dlock_contract::{Backoff, Mode, OncePer};

use super::Lock;
use crate::options::{Cohort, OnLost, Renew, Retry, Wait};

impl<K> Lock<K> {
    /// The name of an installed backend. Default: the registry's default.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// How long the store keeps the lock without a renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// How long to wait while another owner holds the lock.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Whether and how often to renew: after two thirds of the ttl at the latest. Default: at a third of it.
    pub fn renew(mut self, renew: Renew) -> Self {
        self.options.renew = Some(renew);
        self
    }

    /// The most attempts. After them the wait is over, even if time is left. Default: as many as the wait allows.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.options.attempts = Some(attempts);
        self
    }

    /// The pause between two attempts on a store that can only be polled. Default: 100 ms to 5 s, or the store's own.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = Some(backoff);
        self
    }

    /// How many callers of this process may wait for the key; more get
    /// [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull) at once.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.options.max_waiters = Some(max_waiters);
        self
    }

    /// How often a store that fails is asked again. Default: the registry's.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// Lock mode: one holder, many readers, or up to N holders at a time. Default: one holder.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Serves waiters in the order in which they came. Refused if the store does not support it.
    pub fn fair(mut self, fair: bool) -> Self {
        self.options.fair = fair;
        self
    }

    /// Lets waiters of one process pass the lock on among themselves. Refused if the store does not support it.
    pub fn cohort(mut self, cohort: Option<Cohort>) -> Self {
        self.options.cohort = cohort;
        self
    }

    /// A nested call joins the hold of the enclosing one instead of getting
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock); the outer call releases. One with
    /// [`once_per`](Self::once_per) or [`min_hold`](Self::min_hold) cannot join.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.options.reentrant = reentrant;
        self
    }

    /// The least time for which the key stays taken after the grant, by the store's clock, also after an early release.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.options.min_hold = Some(min_hold);
        self
    }

    /// At most one start in each period, in all processes together; otherwise
    /// [`ErrorKind::AlreadyRun`](crate::ErrorKind::AlreadyRun). Refused for a list of keys: it counts the starts under
    /// one.
    pub fn once_per(mut self, once_per: OncePer) -> Self {
        self.options.once_per = Some(once_per);
        self
    }

    /// Keeps the last success as `#[scheduled_lock]` does, if the store supports it.
    #[doc(hidden)]
    pub fn record(mut self, record: bool) -> Self {
        self.options.record = record;
        self
    }

    /// The body's own limit, for [`run`](Self::run): the body is dropped, the lock released, and the caller gets
    /// [`ErrorKind::BodyTimeout`](crate::ErrorKind::BodyTimeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// What happens to the body of [`run`](Self::run) when the lock is lost. Default: it is dropped. It never begins
    /// without the lock.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.options.on_lost = on_lost;
        self
    }

    /// The longest hold. After it, renewal stops and the hold is lost.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// The name in events and in the note. Default: the place in the source where the lock was made.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}
