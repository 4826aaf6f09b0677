//! Silent servers of a cluster. The client finds them by its own time limit; this also counts requests that were given up
//! earlier.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{RedisError, RedisResult};
use dlock_contract::{BootInstant, Clock};

use crate::layout::slots::Slot;

/// A server that lets a request wait for so long is taken for dead, and the way to its slots is found anew.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_millis(1500);

/// After so long a request that was given up says nothing about the next one.
const EXPIRY: Duration = SILENCE_LIMIT.saturating_mul(4);

/// The unanswered requests of one connection.
pub(crate) struct Silence {
    /// Set if the connection must be opened again.
    dead: Arc<AtomicBool>,
    /// Since when nothing has come from the server of a slot, where requests were given up.
    since: Mutex<HashMap<Option<Slot>, BootInstant>>,
}

impl Silence {
    pub(crate) fn new(dead: Arc<AtomicBool>) -> Self {
        Self { dead, since: Mutex::default() }
    }

    /// A request to the server of this slot leaves.
    pub(crate) fn wait<'a>(&'a self, slot: Option<Slot>, clock: &'a Clock) -> Waiting<'a> {
        Waiting { silence: self, slot, clock, since: clock.now() }
    }

    fn since(&self) -> MutexGuard<'_, HashMap<Option<Slot>, BootInstant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// A request under way.
pub(crate) struct Waiting<'a> {
    silence: &'a Silence,
    slot: Option<Slot>,
    clock: &'a Clock,
    since: BootInstant,
}

impl Waiting<'_> {
    pub(crate) fn answered<T>(self, answer: &RedisResult<T>) {
        self.silence.since().remove(&self.slot);
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            self.silence.is_over();
        }
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    /// The request is given up. Several that are given up count together, because renewals of short leases do not wait long
    /// enough to find a silent server alone.
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut unanswered = self.silence.since();
        let since = unanswered.entry(self.slot).or_insert(self.since);
        // Nobody has asked for long.
        if self.since.since(*since) > EXPIRY {
            *since = self.since;
        }
        if now.since(*since) > SILENCE_LIMIT / 2 {
            self.silence.is_over();
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::{ErrorKind, Value};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Gives a request up after so long; is the connection given up too?
    fn gives_up(silence: &Silence, clock: &Clock, after: Duration) -> bool {
        let wait = silence.wait(Slot::new(7), clock);
        clock.advance(after);
        drop(wait);
        silence.dead.load(Ordering::Relaxed)
    }

    fn answered(silence: &Silence, clock: &Clock, slot: u16, answer: &RedisResult<Value>) {
        silence.wait(Slot::new(slot), clock).answered(answer);
    }

    #[test]
    fn requests_given_up_one_after_another_are_silence() {
        let (clock, silence) = (Clock::manual(), Silence::new(Arc::default()));
        assert!(!gives_up(&silence, &clock, 300 * MS));
        clock.advance(100 * MS);
        // Another server has answered.
        answered(&silence, &clock, 8, &Ok(Value::Okay));
        assert!(!gives_up(&silence, &clock, 300 * MS));
        assert!(gives_up(&silence, &clock, 300 * MS));
    }

    #[test]
    fn every_answer_ends_silence() {
        let (clock, silence) = (Clock::manual(), Silence::new(Arc::default()));
        let elsewhere = || RedisError::from((ErrorKind::Server(::redis::ServerErrorKind::Moved), "7 there:1"));
        for answer in [Ok(Value::Okay), Err(elsewhere()), Err(elsewhere())] {
            assert!(!gives_up(&silence, &clock, 500 * MS));
            answered(&silence, &clock, 7, &answer);
        }
        assert!(!gives_up(&silence, &clock, 500 * MS));
    }

    #[test]
    fn what_was_long_ago_is_no_silence() {
        let (clock, silence) = (Clock::manual(), Silence::new(Arc::default()));
        for _ in 0..3 {
            assert!(!gives_up(&silence, &clock, 500 * MS));
            clock.advance(Duration::from_secs(3600));
        }
        // The last one counts again.
        assert!(!gives_up(&silence, &clock, 500 * MS));
        assert!(gives_up(&silence, &clock, 500 * MS));
    }

    #[test]
    fn a_request_that_waits_long_is_enough() {
        let (clock, silence) = (Clock::manual(), Silence::new(Arc::default()));
        assert!(gives_up(&silence, &clock, SILENCE_LIMIT));
        let silence = Silence::new(Arc::default());
        let late = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        answered(&silence, &clock, 7, &Err(late));
        assert!(silence.dead.load(Ordering::Relaxed));
    }
}
