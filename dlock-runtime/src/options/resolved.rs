//! The options in force for one call: put together from all that set them, and checked once.

use std::time::Duration;

use dlock_contract::{Backoff, Error, Mode, Result};

use crate::options::tunings::Tuning;
use crate::options::{Defaults, Options, Renew, Retry, Wait};

/// Options with the defaults filled in, and without contradictions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    /// The time between two renewals; `None` for no renewal.
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) attempts: u32,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) max_waiters: usize,
    pub(crate) retry: Retry,
    pub(crate) min_hold: Option<Duration>,
    /// Whether the run is recorded, if the store can do that.
    pub(crate) record: bool,
}

/// Four places can set an option. A setting from outside of the code ([`Tuning`]) wins over the call, the call over its
/// site, and the site over the registry's defaults.
impl Options {
    /// The options of a site, with what one of its calls says.
    pub(crate) fn said_by_call(self, ttl: Option<Duration>, wait: Option<Wait>) -> Self {
        Self { ttl: ttl.or(self.ttl), wait: wait.or(self.wait), ..self }
    }

    /// These options, as they are changed from outside of the code.
    pub(crate) fn tuned(self, tuning: Tuning) -> Self {
        Self {
            ttl: tuning.ttl.or(self.ttl),
            wait: tuning.wait.or(self.wait),
            renew: tuning.renew.or(self.renew),
            max_hold: tuning.max_hold.or(self.max_hold),
            timeout: tuning.timeout.or(self.timeout),
            min_hold: tuning.min_hold.or(self.min_hold),
            attempts: tuning.attempts.or(self.attempts),
            backoff: tuning.backoff.or(self.backoff),
            max_waiters: tuning.max_waiters.or(self.max_waiters),
            retry: tuning.retry.or(self.retry),
            on_lost: tuning.on_lost.unwrap_or(self.on_lost),
            ..self
        }
    }

    /// These options with the registry's defaults filled in, and checked.
    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<Resolved> {
        let ttl = self.ttl.unwrap_or(defaults.ttl);
        if ttl.is_zero() {
            return Err(Error::config("ttl", "`ttl` must be greater than zero"));
        }
        let cadence = match self.renew.unwrap_or(Renew::Auto) {
            Renew::Auto => Some(ttl / 3),
            Renew::Off => None,
            // A renewal that is late or fails must leave time for another one.
            Renew::Every(every) if every.is_zero() || every.saturating_mul(3) > ttl.saturating_mul(2) => {
                return Err(Error::config(
                    "renew",
                    format!(
                        "a hold of {ttl:?} cannot be renewed every {every:?}: `renew` must be greater than zero and at most two thirds of the ttl, which is {:?}",
                        ttl * 2 / 3
                    ),
                ));
            }
            Renew::Every(every) => Some(every),
        };
        // A ttl that is longer than the default `max_hold` was chosen on purpose. It then is the `max_hold`.
        let max_hold = self.max_hold.unwrap_or(defaults.max_hold.max(ttl));
        if max_hold < ttl {
            return Err(Error::config(
                "max_hold",
                format!("max_hold ({max_hold:?}) must not be shorter than the ttl ({ttl:?})"),
            ));
        }
        let resolved = Resolved {
            ttl,
            wait: self.wait.unwrap_or(defaults.wait),
            cadence,
            max_hold,
            attempts: self.attempts.unwrap_or(u32::MAX),
            backoff: self.backoff,
            max_waiters: self.max_waiters.unwrap_or(defaults.max_waiters),
            retry: self.retry.unwrap_or(defaults.retry),
            min_hold: self.min_hold,
            record: self.record || self.once_per.is_some(),
        };
        self.check(&resolved)?;
        Ok(resolved)
    }

    /// Refuses options that contradict each other, whatever the store.
    fn check(&self, resolved: &Resolved) -> Result<()> {
        let ttl = resolved.ttl;
        if resolved.attempts == 0 {
            return Err(Error::config("attempts", "`attempts` must be greater than zero"));
        }
        if resolved.max_waiters == 0 {
            return Err(Error::config("max_waiters", "`max_waiters` must be greater than zero"));
        }
        self.check_cohort(resolved)?;
        check_backoff("backoff", self.backoff)?;
        check_backoff("retry", Some(resolved.retry.backoff))?;
        if self.min_hold.is_some_and(|min_hold| min_hold > ttl) {
            let text = format!(
                "min_hold must not be longer than the ttl ({ttl:?}): if the process dies, the lock stays taken for the ttl only"
            );
            return Err(Error::config("min_hold", text));
        }
        if let Some(timeout) = self.timeout {
            if timeout.is_zero() {
                return Err(Error::config("timeout", "`timeout` must be greater than zero"));
            }
            // A hold that nobody renews must outlast its body, with the margin that clocks need.
            if resolved.cadence.is_none() && timeout.saturating_add(dlock_contract::engine::margin(ttl)) > ttl {
                let text = format!("a hold of {ttl:?} without renewal does not cover a timeout of {timeout:?}");
                return Err(Error::config("timeout", text));
            }
        }
        if self.once_per.is_some_and(|once| once.period < Duration::from_millis(1)) {
            return Err(Error::config("once_per", "the period of `once_per` must be at least 1 ms"));
        }
        if let Some(once) = self.once_per
            && once.offset >= once.period
        {
            let text = format!("an offset of {:?} must be less than its period of {:?}", once.offset, once.period);
            return Err(Error::config("offset", text));
        }
        if self.once_per.is_some() && self.mode != Mode::Exclusive {
            return Err(Error::config("once_per", "one start per period needs an exclusive lock"));
        }
        Ok(())
    }

    /// A hold that is passed on must be exclusive and renewed, and the store must have nothing to do at its end but
    /// free it. Passing it on overtakes other processes, so it cannot be fair.
    fn check_cohort(&self, resolved: &Resolved) -> Result<()> {
        let Some(cohort) = self.cohort else { return Ok(()) };
        let conflict = match () {
            () if cohort.passes == 0 => "zero passes",
            () if self.mode != Mode::Exclusive => "a mode that is not exclusive",
            () if self.fair => "fair",
            () if self.min_hold.is_some() => "min_hold",
            () if self.once_per.is_some() => "once_per",
            () if resolved.cadence.is_none() => "renew = false",
            () => return Ok(()),
        };
        Err(Error::config("cohort", format!("`cohort` cannot be combined with {conflict}")))
    }
}

fn check_backoff(field: &'static str, backoff: Option<Backoff>) -> Result<()> {
    match backoff {
        Some(Backoff { from, to, .. }) if from.is_zero() || to < from => Err(Error::config(
            field,
            format!("the pause must start above zero and must not shrink; it is {from:?} to {to:?}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::ErrorKind;

    const MS: Duration = Duration::from_millis(1);

    const fn options() -> Options {
        Options::DEFAULT
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
            ("ttl", Options { ttl: Some(Duration::ZERO), ..options() }),
            ("renew", Options { ttl: Some(second), renew: Some(Renew::Every(second)), ..options() }),
            ("renew", Options { renew: Some(Renew::Every(Duration::ZERO)), ..options() }),
            ("renew", Options { ttl: Some(second), renew: Some(Renew::Every(second * 2 / 3 + MS)), ..options() }),
            // Two thirds of the default ttl of 30 s are 20 s.
            ("renew", Options { renew: Some(Renew::Every(20 * second + MS)), ..options() }),
            ("attempts", Options { attempts: Some(0), ..options() }),
            ("max_hold", Options { ttl: Some(second), max_hold: Some(second / 2), ..options() }),
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
    fn renewal_can_be_off_or_at_a_stated_interval() {
        let off = Options { renew: Some(Renew::Off), ..options() };
        assert_eq!(off.resolve(&Defaults::default()).unwrap().cadence, None);
        let paced = Options { renew: Some(Renew::Every(Duration::from_secs(2))), ..options() };
        assert_eq!(paced.resolve(&Defaults::default()).unwrap().cadence, Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_renewal_is_due_after_two_thirds_of_the_ttl_at_the_latest() {
        let every = |time| Options { renew: Some(Renew::Every(time)), ..options() };
        let latest = Duration::from_secs(20);
        assert_eq!(every(latest).resolve(&Defaults::default()).unwrap().cadence, Some(latest));
        assert!(every(latest + Duration::from_nanos(1)).resolve(&Defaults::default()).is_err());
        // An interval that fits the ttl of the program need not fit the ttl that operations have chosen.
        let tuned = Defaults { ttl: Duration::from_secs(29), ..Defaults::default() };
        assert!(every(latest).resolve(&tuned).is_err());
    }
}
