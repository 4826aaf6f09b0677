//! Settings of single sites from outside of the code, and the order of changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use dlock_contract::{Backoff, Error, ErrorKind, Result};

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
    /// Whether and how often to renew: after two thirds of the ttl at the latest.
    pub renew: Option<Renew>,
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// The body's own limit; only an async body has one.
    pub timeout: Option<Duration>,
    /// For how long the key stays taken after the grant.
    pub min_hold: Option<Duration>,
    /// How often the store is asked at most.
    pub attempts: Option<u32>,
    /// The pause between two attempts.
    pub backoff: Option<Backoff>,
    /// How many callers of this process may wait.
    pub max_waiters: Option<usize>,
    /// How often a store that fails is asked again.
    pub retry: Option<Retry>,
    /// The fate of the body when the lock is lost. A body that is not async always goes on.
    pub on_lost: Option<OnLost>,
}

impl Tuning {
    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "ttl" => self.ttl = Some(time(value)?),
            "wait" => {
                self.wait = Some(match value {
                    "none" => Wait::None,
                    "forever" => Wait::Forever,
                    text => Wait::UpTo(time(text)?),
                });
            }
            "renew" => {
                self.renew = Some(match value {
                    "true" => Renew::Auto,
                    "false" => Renew::Off,
                    text => Renew::Every(time(text)?),
                });
            }
            "max_hold" => self.max_hold = Some(time(value)?),
            "timeout" => self.timeout = Some(time(value)?),
            "min_hold" => self.min_hold = Some(time(value)?),
            "attempts" => self.attempts = Some(count(value)?),
            "max_waiters" => self.max_waiters = Some(count(value)?),
            "backoff" => {
                let (from, to) = value.split_once("..").ok_or("write both bounds, such as 100ms..5s")?;
                self.backoff = Some(Backoff::new(time(from)?, time(to)?));
            }
            "on_lost" => {
                self.on_lost = Some(match value {
                    "cancel" => OnLost::Cancel,
                    "continue" => OnLost::Continue,
                    _ => return Err("write cancel or continue".into()),
                });
            }
            "retry" => {
                let Retry { backoff, .. } = crate::Defaults::default().retry;
                self.retry = Some(Retry { times: count(value)?, backoff });
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

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write a duration such as 30s, 1m30s or 500ms".into())
}

fn count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number".into())
}

impl Tunings {
    pub(crate) fn get(&self, name: &str) -> Option<Tuning> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(crate) fn insert(&self, name: &str, tuning: Tuning) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tuning);
        self.has_any.store(true, Ordering::Release);
    }
}
