//! The circuit breaker of a store: while the store keeps failing, new calls fail at once, and no caller waits for its whole
//! request bound.
//!
//! Once [`FAILURE_LIMIT`] requests in a row have failed, over at least [`SHORTEST_FAILURE_SPAN`], a new request is refused without
//! being sent. About once a second one request is sent as a probe. Any answer of the store ends this state, also an
//! answer to a renewal or a release.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind};
use dlock_store::line;

/// The failures in a row after which new requests are refused.
const FAILURE_LIMIT: u32 = 5;

/// The least time from the first to the last of these failures. A burst that fails within one moment says little.
const SHORTEST_FAILURE_SPAN: Duration = Duration::from_secs(1);

/// A request with a shorter bound than this says nothing about the store when it runs out of time.
pub(crate) const CONCLUSIVE_TIME: Duration = Duration::from_secs(1);

/// The results of the last requests to one store.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// Failures in a row.
    failures: AtomicU32,
    /// The time of the first of them, in nanoseconds of the registry's clock.
    since: AtomicU64,
    /// The time of the next probe, in nanoseconds; 0 while all requests are sent.
    probe_at: AtomicU64,
    last: Mutex<Option<Error>>,
}

impl CircuitBreaker {
    /// The store has answered. A refusal is an answer too.
    pub(crate) fn note_answer(&self, store: &str) {
        // While the store is healthy, this costs one atomic load.
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        if self.probe_at.swap(0, Ordering::Relaxed) != 0 {
            let backend = store.to_owned();
            line(move || tracing::debug!(target: "dlock", backend, "the store answers again"));
        }
    }

    /// Whether this error is a failure of the store. An outage that tells the time of the next grant is none.
    pub(crate) fn is_failure(error: &Error) -> bool {
        *error.kind() == ErrorKind::Outage && error.told_after().is_none()
    }

    /// A request has failed. Only an outage counts: any other error is an answer, except one of this process's own. Returns whether
    /// the store keeps failing.
    #[must_use]
    pub(crate) fn note_failure(&self, store: &str, error: &Error, now: BootInstant) -> bool {
        if *error.kind() == ErrorKind::ShutDown {
            return false;
        }
        if !Self::is_failure(error) {
            self.note_answer(store);
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures == 1 {
            self.since.store(now.as_nanos(), Ordering::Relaxed);
        }
        let since = BootInstant::from_nanos(self.since.load(Ordering::Relaxed));
        if failures < FAILURE_LIMIT || now.since(since) < SHORTEST_FAILURE_SPAN {
            return false;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.again());
        let next = next_probe(now);
        if self.probe_at.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let (backend, error) = (store.to_owned(), error.to_string());
            line(move || {
                tracing::debug!(
                    target: "dlock", backend, failures, %error,
                    "the store keeps failing: new calls fail at once, and one a second asks whether it answers again"
                );
            });
        }
        true
    }

    /// Decides whether a new request may be sent.
    ///
    /// # Errors
    /// While the store keeps failing, unless this request is the next probe.
    pub(crate) fn admit(&self, now: impl FnOnce() -> BootInstant) -> Result<(), Error> {
        let probe_at = self.probe_at.load(Ordering::Relaxed);
        if probe_at == 0 {
            return Ok(());
        }
        let now = now();
        if now.as_nanos() >= probe_at
            && self.probe_at.compare_exchange(probe_at, next_probe(now), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Ok(());
        }
        let failures = self.failures.load(Ordering::Relaxed);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match &*last {
            Some(last) => format!(
                "the store has failed {failures} requests in a row, so this one was not sent: {}",
                last.message()
            ),
            None => format!("the store has failed {failures} requests in a row, so this one was not sent"),
        };
        let error = Error::outage(text).never_sent();
        Err(match last.as_ref().and_then(Error::code) {
            Some(code) => error.with_code(code),
            None => error,
        })
    }

    /// The time of the next probe; `None` while all requests are sent.
    pub(crate) fn holds_back_until(&self) -> Option<BootInstant> {
        let probe_at = self.probe_at.load(Ordering::Relaxed);
        (probe_at != 0).then(|| BootInstant::from_nanos(probe_at))
    }
}

/// About a second from now. The time is random, so that processes do not probe together.
fn next_probe(now: BootInstant) -> u64 {
    now.after(Duration::from_millis(fastrand::u64(500..1500))).as_nanos().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn fail(breaker: &CircuitBreaker, times: u32, seconds: u64) {
        for _ in 0..times {
            let _ = breaker.note_failure("s", &Error::outage("down"), at(seconds));
        }
    }

    fn is_open(breaker: &CircuitBreaker, seconds: u64) -> bool {
        breaker.admit(|| at(seconds)).is_err()
    }

    #[test]
    fn five_failures_in_a_row_over_a_second_hold_new_requests_back() {
        let breaker = CircuitBreaker::default();
        fail(&breaker, 100, 10);
        assert!(!is_open(&breaker, 10), "a burst");
        breaker.note_answer("s");
        fail(&breaker, 3, 10);
        fail(&breaker, 1, 12);
        assert!(!is_open(&breaker, 12), "four");
        fail(&breaker, 1, 12);
        let error = breaker.admit(|| at(12)).unwrap_err();
        assert!(!error.may_have_left() && error.is_retryable() && *error.kind() == ErrorKind::Outage, "{error}");
    }

    #[test]
    fn one_probe_a_second_is_let_through_and_an_answer_ends_it() {
        let breaker = CircuitBreaker::default();
        fail(&breaker, 1, 10);
        fail(&breaker, 4, 12);
        let let_through = (12..112).filter(|second| !is_open(&breaker, *second)).count();
        assert!((50..=100).contains(&let_through), "{let_through}");
        breaker.note_answer("s");
        assert!((0..5).all(|_| !is_open(&breaker, 200)));
    }

    #[test]
    fn the_end_of_this_process_is_no_answer() {
        let breaker = CircuitBreaker::default();
        fail(&breaker, 1, 10);
        fail(&breaker, 4, 12);
        assert!(!breaker.note_failure("s", &Error::new(ErrorKind::ShutDown, "x"), at(12)));
        assert!(is_open(&breaker, 12));
    }

    #[test]
    fn an_answer_of_the_store_is_no_failure_even_if_it_is_an_error() {
        let breaker = CircuitBreaker::default();
        for error in [Error::new(ErrorKind::KeyConflict, "x"), Error::outage("guard").with_retry_after(Some(SECOND))] {
            fail(&breaker, 4, 10);
            assert!(!breaker.note_failure("s", &error, at(12)));
            fail(&breaker, 1, 13);
            assert!(!is_open(&breaker, 13));
            breaker.note_answer("s");
        }
    }
}
