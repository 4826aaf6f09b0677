//! Settings of single sites from outside of the code, and the order of changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use dlock_contract::{Backoff, Error, ErrorKind, Result};
use dlock_values::Pauses;

use crate::options::{OnLost, Renew, Retry, Wait};

/// The settings of single sites, by name.
#[derive(Debug, Default)]
pub(crate) struct Tunings {
    /// Most programs have none, and pay one load.
    has_any: AtomicBool,
    by_name: RwLock<HashMap<String, Tuning>>,
}

/// Changes of the settings come one after another, so that each begins with the result of the one before. The user's
/// part of a change runs while no mutex is held that a call needs.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    running_on: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

/// One change; the next may begin when this is dropped.
pub(crate) struct Change<'a>(&'a Changes);

impl Changes {
    pub(crate) fn begin(&self) -> Result<Change<'_>> {
        let this_thread = thread::current().id();
        let mut running_on = self.running_on.lock().unwrap_or_else(PoisonError::into_inner);
        if *running_on == Some(this_thread) {
            let text = "a change of the settings must not make another change inside it; that would deadlock";
            return Err(Error::new(ErrorKind::WouldDeadlock, text));
        }
        while running_on.is_some() {
            running_on = self.ended.wait(running_on).unwrap_or_else(PoisonError::into_inner);
        }
        *running_on = Some(this_thread);
        Ok(Change(self))
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        *self.0.running_on.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.ended.notify_one();
    }
}

/// Settings that replace those of a site; `None` leaves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// How long the store keeps the lock without a renewal.
    pub ttl: Option<Duration>,
    /// How long to wait while another owner holds the lock.
    pub wait: Option<Wait>,
    /// Whether and how often to renew: after 1 ms at the earliest, and after two thirds of the ttl at the latest.
    pub renew: Option<Renew>,
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// The body's own limit. Refused for a function that is not async, which cannot be stopped.
    pub timeout: Option<Duration>,
    /// For how long the key stays taken after the grant.
    pub min_hold: Option<Duration>,
    /// How often the store is asked at most.
    pub attempts: Option<u32>,
    /// The pause between two attempts.
    pub backoff: Option<Backoff>,
    /// How many callers of this process may wait.
    pub max_waiters: Option<usize>,
    /// How often a failed request is repeated. If this has no pauses, those of the site apply.
    pub retry: Option<Retry>,
    /// The fate of the body when the lock is lost. A body that is not async always goes on, so `Cancel` is refused for it.
    pub on_lost: Option<OnLost>,
}

impl Tuning {
    /// Reads the value as the attribute does.
    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            // `#[scheduled_lock]` has other names for two of them.
            "ttl" | "at_most" => self.ttl = Some(dlock_values::duration(value)?),
            "min_hold" | "at_least" => self.min_hold = Some(dlock_values::duration(value)?),
            "wait" => self.wait = Some(dlock_values::wait(value)?),
            "renew" => self.renew = Some(dlock_values::renew(value)?),
            "max_hold" => self.max_hold = Some(dlock_values::duration(value)?),
            "timeout" => self.timeout = Some(dlock_values::duration(value)?),
            "attempts" => self.attempts = Some(dlock_values::count(value)?),
            "max_waiters" => self.max_waiters = Some(dlock_values::max_waiters(value)? as usize),
            "backoff" => self.backoff = Some(backoff(dlock_values::pauses(value)?)),
            "on_lost" => {
                self.on_lost = Some(match value {
                    "cancel" => OnLost::Cancel,
                    "continue" => OnLost::Continue,
                    _ => return Err("write `cancel` or `continue`".into()),
                });
            }
            "retry" => {
                let dlock_values::Retry { times, pauses } = dlock_values::retry(value)?;
                let retry = Retry { times, backoff: pauses.map(backoff) };
                self.retry = Some(retry.or_pauses_of(self.retry));
            }
            "on_busy" | "on_outage" => {
                return Err("this is a part of the function's type, and cannot change without a rebuild".into());
            }
            _ => {
                return Err("there is no such setting; the settings are ttl, wait, renew, max_hold, timeout, min_hold, attempts, backoff, max_waiters, retry, on_lost".into());
            }
        }
        Ok(())
    }
}

const fn backoff((from, to): Pauses) -> Backoff {
    Backoff::new(from, to)
}

impl Tunings {
    pub(crate) fn get(&self, name: &str) -> Option<Tuning> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(crate) fn all(&self) -> HashMap<String, Tuning> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn insert(&self, name: &str, tuning: Tuning) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tuning);
        self.has_any.store(true, Ordering::Release);
    }
}
