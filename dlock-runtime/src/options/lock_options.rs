//! The options of one lock: their fields, how the sources that set them are merged and checked, and how they are shown.
//!
//! Only this file and the settings from outside ([`Tuning`]) know each option by name.

use std::time::Duration;

use dlock_contract::{Backoff, Error, Mode, OncePer, Result, Validity};
use dlock_values::{LONGEST, SHORTEST_INTERVAL};

use crate::options::tunings::Tuning;
use crate::options::{Cohort, Defaults, OnLost, RETRY_PAUSES, Renew, Retry, Wait};

/// The options of one lock; `None` takes the registry's default.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub ttl: Option<Duration>,
    pub wait: Option<Wait>,
    pub renew: Option<Renew>,
    pub max_hold: Option<Duration>,
    /// How often the store is asked at most; `None`: as often as the wait allows.
    pub attempts: Option<u32>,
    pub backoff: Option<Backoff>,
    pub max_waiters: Option<usize>,
    pub retry: Option<Retry>,
    pub mode: Mode,
    pub fair: bool,
    pub cohort: Option<Cohort>,
    pub reentrant: bool,
    pub timeout: Option<Duration>,
    pub min_hold: Option<Duration>,
    pub once_per: Option<OncePer>,
    /// Whether the last success is kept, also without periods. Ignored where the store cannot do it.
    pub record: bool,
    pub on_lost: OnLost,
    /// Whether the body uses the fencing token.
    pub fence: bool,
    /// Whether the lock decides who leads.
    pub election: bool,
    /// Whether the log and errors show a hash in the place of the key.
    pub sensitive: bool,
}

impl Options {
    /// No option set.
    pub const DEFAULT: Self = Self {
        ttl: None,
        wait: None,
        renew: None,
        max_hold: None,
        attempts: None,
        backoff: None,
        max_waiters: None,
        retry: None,
        mode: Mode::Exclusive,
        fair: false,
        cohort: None,
        reentrant: false,
        timeout: None,
        min_hold: None,
        once_per: None,
        record: false,
        on_lost: OnLost::Cancel,
        fence: false,
        election: false,
        sensitive: false,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

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
    pub(crate) retries: u32,
    pub(crate) retry_pauses: Backoff,
    pub(crate) min_hold: Option<Duration>,
    /// Whether the run is recorded, if the store can do that.
    pub(crate) record: bool,
    pub(crate) sensitive: bool,
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
            retry: tuning.retry.map(|retry| retry.or_pauses_of(self.retry)).or(self.retry),
            on_lost: tuning.on_lost.unwrap_or(self.on_lost),
            ..self
        }
    }

    /// These options with the registry's defaults filled in, and checked.
    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<Resolved> {
        let ttl = self.ttl.unwrap_or(defaults.ttl);
        in_range("ttl", ttl)?;
        let cadence = match self.renew.unwrap_or(Renew::Auto) {
            Renew::Auto => Some((ttl / 3).max(SHORTEST_INTERVAL)),
            Renew::Off => None,
            // A renewal that is late or fails must leave time for another one.
            Renew::Every(every) if every < SHORTEST_INTERVAL || every.saturating_mul(3) > ttl * 2 => {
                return Err(Error::config(
                    "renew",
                    format!(
                        "a hold of {ttl:?} cannot be renewed every {every:?}: `renew` must be at least 1 ms and at most two thirds of the ttl, which is {:?}",
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
        let retry = self.retry.unwrap_or(defaults.retry).or_pauses_of(Some(defaults.retry));
        let resolved = Resolved {
            ttl,
            wait: self.wait.unwrap_or(defaults.wait),
            cadence,
            max_hold,
            attempts: self.attempts.unwrap_or(u32::MAX),
            backoff: self.backoff,
            max_waiters: self.max_waiters.unwrap_or(defaults.max_waiters),
            retries: retry.times,
            retry_pauses: retry.backoff.unwrap_or(RETRY_PAUSES),
            min_hold: self.min_hold,
            record: self.record || self.once_per.is_some(),
            sensitive: self.sensitive,
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
        self.check_times(resolved)?;
        self.check_cohort(resolved)?;
        check_backoff("backoff", self.backoff)?;
        check_backoff("retry", Some(resolved.retry_pauses))?;
        if self.min_hold.is_some_and(|min_hold| min_hold > ttl) {
            let text = format!(
                "min_hold must not be longer than the ttl ({ttl:?}): if the process dies, the lock stays taken for the ttl only"
            );
            return Err(Error::config("min_hold", text));
        }
        if let Some(timeout) = self.timeout {
            // A hold that nobody renews must outlast its body, with the margin that clocks need.
            if resolved.cadence.is_none() && timeout.saturating_add(Validity::margin(ttl)) > ttl {
                let text = format!("a hold of {ttl:?} without renewal does not cover a timeout of {timeout:?}");
                return Err(Error::config("timeout", text));
            }
        }
        if self.once_per.is_some_and(|once| once.period < SHORTEST_INTERVAL) {
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

    /// Times for which the attribute would be refused are refused from everywhere.
    fn check_times(&self, resolved: &Resolved) -> Result<()> {
        in_range("max_hold", resolved.max_hold)?;
        match resolved.wait {
            Wait::UpTo(limit) if limit > LONGEST => {
                let text = "`wait` must not be longer than 100 years; to wait without a limit is `Wait::Forever`";
                return Err(Error::config("wait", text));
            }
            _ => {}
        }
        let times = [
            ("timeout", self.timeout),
            ("min_hold", self.min_hold),
            ("once_per", self.once_per.map(|once| once.period)),
            ("cohort", self.cohort.and_then(|cohort| cohort.span)),
        ];
        times.into_iter().try_for_each(|(field, time)| time.map_or(Ok(()), |time| in_range(field, time)))
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

    /// The settings by name, for people.
    pub(crate) fn settings(&self, resolved: &Resolved) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("mode", format!("{:?}", self.mode).to_lowercase()),
            ("ttl", time(resolved.ttl)),
            (
                "wait",
                match resolved.wait {
                    Wait::None => "none".to_owned(),
                    Wait::Forever => "forever".to_owned(),
                    Wait::UpTo(limit) => time(limit),
                },
            ),
            ("renew", resolved.cadence.map_or_else(|| "never".to_owned(), |every| format!("every {}", time(every)))),
            ("max_hold", time(resolved.max_hold)),
            ("max_waiters", resolved.max_waiters.to_string()),
            ("on_lost", if self.on_lost == OnLost::Cancel { "cancel" } else { "continue" }.to_owned()),
            (
                "retry",
                format!(
                    "{} times, {} to {}",
                    resolved.retries,
                    time(resolved.retry_pauses.from),
                    time(resolved.retry_pauses.to)
                ),
            ),
        ];
        let mut add = |name, value: Option<String>| settings.extend(value.map(|value| (name, value)));
        add("attempts", self.attempts.map(|attempts| attempts.to_string()));
        add("backoff", self.backoff.map(|backoff| format!("{} to {}", time(backoff.from), time(backoff.to))));
        add("cohort", self.cohort.map(cohort));
        add("fair", self.fair.then(|| "yes".to_owned()));
        add("reentrant", self.reentrant.then(|| "yes".to_owned()));
        add("timeout", self.timeout.map(time));
        add("min_hold", self.min_hold.map(time));
        add("once_per", self.once_per.map(period));
        add("sensitive", self.sensitive.then(|| "yes".to_owned()));
        settings
    }
}

fn in_range(field: &'static str, time: Duration) -> Result<()> {
    match time {
        Duration::ZERO => Err(Error::config(field, format!("`{field}` must be greater than zero"))),
        time if time > LONGEST => Err(Error::config(field, format!("`{field}` must not be longer than 100 years"))),
        _ => Ok(()),
    }
}

fn check_backoff(field: &'static str, backoff: Option<Backoff>) -> Result<()> {
    match backoff {
        Some(Backoff { from, to, .. }) if from < SHORTEST_INTERVAL || to < from || to > LONGEST => {
            let text = format!(
                "the pause must start at 1 ms or more, must not shrink and must not be longer than 100 years; it is {from:?} to {to:?}"
            );
            Err(Error::config(field, text))
        }
        _ => Ok(()),
    }
}

fn period(once: OncePer) -> String {
    let offset = if once.offset.is_zero() { String::new() } else { format!(" at {}", time(once.offset)) };
    format!("{}{offset}{}", time(once.period), if once.rerun { ", again after a crash" } else { "" })
}

fn cohort(cohort: Cohort) -> String {
    let span = cohort.span.map_or_else(String::new, |span| format!(" in {}", time(span)));
    format!("{} passes{span}", cohort.passes)
}

fn time(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests;
