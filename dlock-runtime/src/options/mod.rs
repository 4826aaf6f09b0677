//! The options of a lock: from the attribute, the builder, the registry's defaults and settings from outside.
//!
//! Owns the option types, their defaults, the one place that puts them together ([`lock_options`]) and the check of them
//! against a store's profile ([`supported`]). It asks no store anything.
//!
//! May know no other room.

pub(crate) mod constants;
pub(crate) mod lock_options;
pub(crate) mod supported;
pub(crate) mod tunings;

use std::time::Duration;

use dlock_contract::{Backoff, Error, Result};

pub use lock_options::Options;

/// How long to wait for a lock that another owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait: ask once.
    None,
    /// At most this time.
    UpTo(Duration),
    /// As long as it takes.
    Forever,
}

impl From<Duration> for Wait {
    /// Waits at most this time; zero means not to wait.
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::UpTo(limit) }
    }
}

/// The fate of the body when its lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped at its next await. A function that is not async is not stopped.
    #[default]
    Cancel,
    /// It goes on to its end. Then the call returns the loss.
    Continue,
}

/// The behaviour of a function instead of returning an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// It returns the error to the caller.
    #[default]
    Error,
    /// It returns without having run. Its return type says so.
    Skip,
    /// It calls another function with the same arguments.
    Call,
}

/// How often the store is asked again after a failure that is retryable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of retries; zero for none.
    pub times: u32,
    /// The pause before each retry.
    pub backoff: Backoff,
}

/// Within which bounds a lock may be passed on inside of one process while other processes wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// The most passes.
    pub passes: u32,
    /// The longest time; `None`: a tenth of the ttl.
    pub span: Option<Duration>,
}

/// Whether and when a hold is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// At a third of the ttl.
    Auto,
    /// Never: the hold ends with its ttl.
    Off,
    /// At this interval: two thirds of the ttl at most.
    Every(Duration),
}

/// The registry's defaults, for every lock that does not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defaults {
    /// How long the store keeps a lock without a renewal. 30 s.
    pub ttl: Duration,
    /// How long to wait for a lock. 10 s.
    pub wait: Wait,
    /// The longest hold. Then renewal stops and the hold is lost, even if its owner is alive. 1 h.
    pub max_hold: Duration,
    /// The service's name: the first part of every key, so that two services on one store do not meet. `default`.
    pub namespace: String,
    /// How many callers of this process may wait for one key; more get an error at once. 10 000.
    pub max_waiters: usize,
    /// How often a store that fails is asked again. 3 times, after 100 ms to 5 s.
    pub retry: Retry,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: Wait::UpTo(Duration::from_secs(10)),
            max_hold: Duration::from_secs(3600),
            namespace: "default".into(),
            max_waiters: 10_000,
            retry: Retry { times: 3, backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)) },
        }
    }
}

impl Defaults {
    pub(crate) fn check(&self) -> Result<()> {
        dlock_contract::engine::check_namespace(&self.namespace)?;
        let zero = |field: &str| Error::config(field, format!("`{field}` must be greater than zero"));
        if self.ttl.is_zero() {
            return Err(zero("ttl"));
        }
        if self.max_hold < self.ttl {
            return Err(Error::config(
                "max_hold",
                format!("max_hold ({:?}) must not be shorter than the ttl ({:?})", self.max_hold, self.ttl),
            ));
        }
        if self.max_waiters == 0 {
            return Err(Error::config("max_waiters", "`max_waiters` must be greater than zero"));
        }
        Ok(())
    }
}
