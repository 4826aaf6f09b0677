//! The options of a lock: from the attribute, the builder, the registry's defaults and settings from outside.
//!
//! Owns the option types, their defaults, the one place that puts them together ([`lock_options`]) and the check of them
//! against a store's profile ([`supported`]). It asks no store anything.
//!
//! May know no other module.

pub(crate) mod constants;
pub(crate) mod lock_options;
pub(crate) mod supported;
pub(crate) mod tuning_text;
pub(crate) mod tunings;

use std::time::Duration;

use dlock_contract::{Backoff, Error, LockKey, Result};

#[doc(inline)]
pub use dlock_values::{Renew, Wait};
pub use lock_options::Options;

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
    /// It returns without having run its body. Its return value says so.
    Skip,
    /// It calls another function with the same arguments.
    Call,
}

/// How often the store is asked again after a failure that is retryable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of retries; zero for none.
    pub times: u32,
    /// The pause before each retry; `None`: the pauses of the attribute, or else those of the registry.
    pub backoff: Option<Backoff>,
}

/// The pauses before retries, if nothing gives any.
pub(crate) const RETRY_PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

impl Retry {
    /// This retry. If it has no pauses, it takes those of `other`.
    pub(crate) fn or_pauses_of(self, other: Option<Self>) -> Self {
        Self { backoff: self.backoff.or(other.and_then(|other| other.backoff)), ..self }
    }
}

/// The bounds within which a lock may be passed on inside of one process while other processes wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// The most passes.
    pub passes: u32,
    /// The longest time; `None`: a tenth of the ttl.
    pub span: Option<Duration>,
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
            retry: Retry { times: 3, backoff: Some(RETRY_PAUSES) },
        }
    }
}

impl Defaults {
    /// Refuses defaults that no lock could use.
    pub(crate) fn check(&self) -> Result<()> {
        LockKey::check_namespace(&self.namespace)?;
        Options::DEFAULT.resolve(self)?;
        if self.max_hold < self.ttl {
            return Err(Error::config(
                "max_hold",
                format!("max_hold ({:?}) must not be shorter than the ttl ({:?})", self.max_hold, self.ttl),
            ));
        }
        Ok(())
    }
}
