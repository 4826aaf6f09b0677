//! Servers of a cluster that are silent: whoever has less patience than the client finds out too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{RedisError, RedisResult};

use super::slots::Slot;
use crate::clock::{BootInstant, Clock};

/// A server that lets a request wait for so long is taken for dead, and the way to its slots is found anew.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_millis(1500);

/// What is unanswered on one connection.
pub(super) struct Silence {
    /// That it is to be opened anew.
    dead: Arc<AtomicBool>,
    /// Since when nothing has come from the server of a slot, where requests were given up.
    since: Mutex<HashMap<Option<Slot>, BootInstant>>,
}

impl Silence {
    pub(super) fn new(dead: Arc<AtomicBool>) -> Self {
        Self { dead, since: Mutex::default() }
    }

    /// A request to the server of this slot leaves.
    pub(super) fn wait<'a>(&'a self, slot: Option<Slot>, clock: &'a Clock) -> Waiting<'a> {
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
pub(super) struct Waiting<'a> {
    silence: &'a Silence,
    slot: Option<Slot>,
    clock: &'a Clock,
    since: BootInstant,
}

impl Waiting<'_> {
    pub(super) fn answered<T>(self, answer: &RedisResult<T>) {
        self.silence.since().remove(&self.slot);
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            self.silence.is_over();
        }
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    /// It is given up, perhaps as others before it: short leases leave no renewal the time to find out alone.
    fn drop(&mut self) {
        let since = *self.silence.since().entry(self.slot).or_insert(self.since);
        if self.clock.now().since(since) > SILENCE_LIMIT / 2 {
            self.silence.is_over();
        }
    }
}
