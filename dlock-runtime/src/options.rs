//! What can be asked of a lock, from the site, the builder or the registry; checked once, then believed.

use std::time::Duration;

use crate::error::{Error, Result};

/// How long to wait for a lock that others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: ask once.
    None,
    /// At most so long.
    UpTo(Duration),
    /// As long as it takes.
    Forever,
}

/// Whether and when a hold is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renew {
    /// At a third of the ttl.
    Auto,
    /// Never: the hold ends with its ttl.
    Off,
    /// So often.
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
    /// Renewal stops there and the hold is lost, however alive its owner looks. 1 h.
    pub max_hold: Duration,
    /// The service's name: the first part of every key, so that two services on one store do not meet. `default`.
    pub namespace: String,
    /// How many callers of this process may wait for one key; more get an error at once. 10 000.
    pub max_waiters: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: Wait::UpTo(Duration::from_secs(10)),
            max_hold: Duration::from_secs(3600),
            namespace: "default".into(),
            max_waiters: 10_000,
        }
    }
}

impl Defaults {
    pub(crate) fn check(&self) -> Result<()> {
        crate::key::check_namespace(&self.namespace)?;
        let zero = |field: &str| Error::config(field, format!("{field} must be longer than nothing"));
        if self.ttl.is_zero() {
            return Err(zero("ttl"));
        }
        if self.max_hold < self.ttl {
            return Err(Error::config(
                "max_hold",
                format!("max_hold ({:?}) must not be below the ttl ({:?})", self.max_hold, self.ttl),
            ));
        }
        if self.max_waiters == 0 {
            return Err(Error::config("max_waiters", "with no waiter allowed nobody could acquire anything"));
        }
        Ok(())
    }
}

/// What one lock asks for; `None` takes the registry's default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    pub(crate) renew: Option<Renew>,
    pub(crate) max_hold: Option<Duration>,
    /// How often the store is asked at most; `None`: as often as the wait allows.
    pub(crate) attempts: Option<u32>,
}

/// Options with the defaults filled in, and without contradictions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    /// How often to renew; `None` for never.
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) attempts: u32,
}

impl LockOptions {
    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<Resolved> {
        let ttl = self.ttl.unwrap_or(defaults.ttl);
        if ttl.is_zero() {
            return Err(Error::config("ttl", "a ttl must be longer than nothing"));
        }
        let cadence = match self.renew.unwrap_or(Renew::Auto) {
            Renew::Auto => Some(ttl / 3),
            Renew::Off => None,
            Renew::Every(every) if every.is_zero() || every >= ttl => {
                return Err(Error::config(
                    "renew",
                    format!(
                        "a hold of {ttl:?} cannot be renewed every {every:?}: it must be less than the ttl, and more than nothing"
                    ),
                ));
            }
            Renew::Every(every) => Some(every),
        };
        // A longer ttl than the default bound was asked for knowingly; it then is the bound.
        let max_hold = self.max_hold.unwrap_or(defaults.max_hold.max(ttl));
        if max_hold < ttl {
            return Err(Error::config(
                "max_hold",
                format!("max_hold ({max_hold:?}) must not be below the ttl ({ttl:?})"),
            ));
        }
        let attempts = self.attempts.unwrap_or(u32::MAX);
        if attempts == 0 {
            return Err(Error::config("attempts", "without an attempt nobody could acquire anything"));
        }
        Ok(Resolved { ttl, wait: self.wait.unwrap_or(defaults.wait), cadence, max_hold, attempts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const fn options() -> LockOptions {
        LockOptions { ttl: None, wait: None, renew: None, max_hold: None, attempts: None }
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let resolved = options().resolve(&Defaults::default()).unwrap();
        assert_eq!(resolved.ttl, Duration::from_secs(30));
        assert_eq!(resolved.wait, Wait::UpTo(Duration::from_secs(10)));
        assert_eq!(resolved.cadence, Some(Duration::from_secs(10)));
        assert_eq!(resolved.max_hold, Duration::from_secs(3600));
    }

    #[test]
    fn contradictions_are_refused() {
        let second = Duration::from_secs(1);
        for (field, bad) in [
            ("ttl", LockOptions { ttl: Some(Duration::ZERO), ..options() }),
            ("renew", LockOptions { ttl: Some(second), renew: Some(Renew::Every(second)), ..options() }),
            ("renew", LockOptions { renew: Some(Renew::Every(Duration::ZERO)), ..options() }),
            ("attempts", LockOptions { attempts: Some(0), ..options() }),
            ("max_hold", LockOptions { ttl: Some(second), max_hold: Some(second / 2), ..options() }),
        ] {
            let error = bad.resolve(&Defaults::default()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field: named } if named == field), "{error}");
        }
        for bad in [
            Defaults { ttl: Duration::ZERO, ..Defaults::default() },
            Defaults { max_hold: second, ..Defaults::default() },
            Defaults { namespace: "a:b".into(), ..Defaults::default() },
            Defaults { max_waiters: 0, ..Defaults::default() },
        ] {
            assert!(bad.check().is_err());
        }
    }

    #[test]
    fn renewal_can_be_off_or_paced() {
        let off = LockOptions { renew: Some(Renew::Off), ..options() };
        assert_eq!(off.resolve(&Defaults::default()).unwrap().cadence, None);
        let paced = LockOptions { renew: Some(Renew::Every(Duration::from_secs(2))), ..options() };
        assert_eq!(paced.resolve(&Defaults::default()).unwrap().cadence, Some(Duration::from_secs(2)));
    }
}
