//! What can be asked of a lock, from the site, the builder or the registry; checked once, then believed.

use std::num::NonZeroU32;
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

impl From<Duration> for Wait {
    /// Waits at most so long; nothing at all means not to wait.
    fn from(limit: Duration) -> Self {
        if limit.is_zero() { Self::None } else { Self::UpTo(limit) }
    }
}

/// Who may hold a lock beside whom.
///
/// Locks of different families do not mix under one key: `Exclusive`, `Read` with `Write`, and `Permits` of one number.
/// Who comes with another one than is in use gets [`ErrorKind::KeyConflict`](crate::ErrorKind::KeyConflict).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One holder, alone.
    #[default]
    Exclusive,
    /// Beside other readers, never beside a writer.
    Read,
    /// Alone; readers that come while it waits stand behind it.
    Write,
    /// So many holders at most; each has a number of its own, see [`Held::slot`](crate::Held::slot).
    Permits(NonZeroU32),
}

impl Kind {
    /// So many holders at most; at least one.
    #[doc(hidden)]
    #[must_use]
    pub const fn permits(limit: u32) -> Self {
        Self::Permits(NonZeroU32::MIN.saturating_add(limit.saturating_sub(1)))
    }

    /// May several hold it at a time?
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::Permits(_))
    }

    /// May both be asked for under one key?
    #[must_use]
    pub const fn mixes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) | (Self::Read | Self::Write, Self::Read | Self::Write) => true,
            (Self::Permits(one), Self::Permits(other)) => one.get() == other.get(),
            _ => false,
        }
    }

    /// Does a hold of this kind give all that `inner` would?
    pub(crate) fn covers(self, inner: Self) -> bool {
        self == inner || (self == Self::Write && inner == Self::Read)
    }
}

/// At most one start in each period, in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OncePer {
    /// The length of a period. A start belongs to the nearest boundary: those of 11:59:58 and 12:00:02 are one of `1h`.
    pub period: Duration,
    /// By how much the boundaries come after those that are counted from 1970 in UTC; less than the period. They belong
    /// near the times at which the task fires: with a period of a day and no offset, noon lies exactly between two, and
    /// two nodes whose clocks differ by a second would start it twice.
    pub offset: Duration,
    /// Is a run whose process died before its end started again, once its lease has ended? Then one that goes on is
    /// contention: who waits for it takes over if it dies, and hears [`AlreadyRun`](crate::ErrorKind::AlreadyRun) when
    /// it has ended. Otherwise everybody else hears that at once.
    pub rerun: bool,
}

/// What becomes of the body when its lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped at its next await. A function that is not async can only be told.
    #[default]
    Cancel,
    /// It goes on to its end; then the caller hears of the loss.
    Continue,
}

/// What a function does instead of giving an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// Nothing: the caller gets the error.
    #[default]
    Error,
    /// It returns without having run, and says so as its return type can.
    Skip,
    /// It calls another function with the same arguments.
    Call,
}

/// A pause that grows from one bound to the other, each time random up to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first bound.
    pub from: Duration,
    /// The last bound.
    pub to: Duration,
}

/// How often a store that fails, in a way that can pass, is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many further times; zero for none.
    pub times: u32,
    /// How long after each.
    pub backoff: Backoff,
}

/// Within which bounds a lock may be passed on inside of one process while other processes wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// So many passes at most.
    pub passes: u32,
    /// For so long at most; `None`: a tenth of the ttl.
    pub span: Option<Duration>,
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
            retry: Retry {
                times: 3,
                backoff: Backoff { from: Duration::from_millis(100), to: Duration::from_secs(5) },
            },
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
    pub kind: Kind,
    pub fair: bool,
    pub cohort: Option<Cohort>,
    pub reentrant: bool,
    pub timeout: Option<Duration>,
    pub min_hold: Option<Duration>,
    pub once_per: Option<OncePer>,
    /// Is the last success kept, also without periods? Only where the store can do that; nothing is refused.
    pub record: bool,
    pub on_lost: OnLost,
    /// Does the body use the fencing token?
    pub fence: bool,
}

impl Options {
    /// Nothing asked for.
    pub const DEFAULT: Self = Self {
        ttl: None,
        wait: None,
        renew: None,
        max_hold: None,
        attempts: None,
        backoff: None,
        max_waiters: None,
        retry: None,
        kind: Kind::Exclusive,
        fair: false,
        cohort: None,
        reentrant: false,
        timeout: None,
        min_hold: None,
        once_per: None,
        record: false,
        on_lost: OnLost::Cancel,
        fence: false,
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
    /// How often to renew; `None` for never.
    pub(crate) cadence: Option<Duration>,
    pub(crate) max_hold: Duration,
    pub(crate) attempts: u32,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) max_waiters: usize,
    pub(crate) retry: Retry,
    pub(crate) cohort: Option<Cohort>,
    pub(crate) min_hold: Option<Duration>,
    /// Shall the store hear how the run went, if it can keep that?
    pub(crate) record: bool,
}

impl Options {
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
        let resolved = Resolved {
            ttl,
            wait: self.wait.unwrap_or(defaults.wait),
            cadence,
            max_hold,
            attempts: self.attempts.unwrap_or(u32::MAX),
            backoff: self.backoff,
            max_waiters: self.max_waiters.unwrap_or(defaults.max_waiters),
            retry: self.retry.unwrap_or(defaults.retry),
            cohort: self.cohort,
            min_hold: self.min_hold,
            record: self.record || self.once_per.is_some(),
        };
        self.check(&resolved)?;
        Ok(resolved)
    }

    /// What cannot be, whatever the store.
    fn check(&self, resolved: &Resolved) -> Result<()> {
        let ttl = resolved.ttl;
        if resolved.attempts == 0 {
            return Err(Error::config("attempts", "without an attempt nobody could acquire anything"));
        }
        if resolved.max_waiters == 0 {
            return Err(Error::config("max_waiters", "with no waiter allowed nobody could acquire anything"));
        }
        self.check_cohort(resolved)?;
        check_backoff("backoff", self.backoff)?;
        check_backoff("retry", Some(resolved.retry.backoff))?;
        if self.min_hold.is_some_and(|min_hold| min_hold > ttl) {
            let text =
                format!("min_hold must not be above the ttl ({ttl:?}): a process that dies keeps the lock no longer");
            return Err(Error::config("min_hold", text));
        }
        if let Some(timeout) = self.timeout {
            if timeout.is_zero() {
                return Err(Error::config("timeout", "a body needs more time than none"));
            }
            // A hold that nobody renews must outlast its body, with the margin that clocks need.
            if resolved.cadence.is_none() && timeout.saturating_add(crate::backend::margin(ttl)) > ttl {
                let text = format!("a hold of {ttl:?} that is not renewed does not cover a body of {timeout:?}");
                return Err(Error::config("timeout", text));
            }
        }
        if self.once_per.is_some_and(|once| once.period < Duration::from_millis(1)) {
            return Err(Error::config("once_per", "a period has at least one millisecond"));
        }
        if let Some(once) = self.once_per
            && once.offset >= once.period
        {
            let text = format!("an offset of {:?} must be less than its period of {:?}", once.offset, once.period);
            return Err(Error::config("offset", text));
        }
        if self.once_per.is_some() && self.kind != Kind::Exclusive {
            return Err(Error::config("once_per", "one start per period needs an exclusive lock"));
        }
        Ok(())
    }

    /// A hold that is passed on is exclusive, is renewed, and can simply be freed; and who passes it on overtakes others.
    fn check_cohort(&self, resolved: &Resolved) -> Result<()> {
        let Some(cohort) = self.cohort else { return Ok(()) };
        let against = match () {
            () if cohort.passes == 0 => "passes: zero, which is no cohort",
            () if self.kind != Kind::Exclusive => "a kind that is not exclusive",
            () if self.fair => "fair",
            () if self.min_hold.is_some() => "min_hold",
            () if self.once_per.is_some() => "once_per",
            () if resolved.cadence.is_none() => "renew = false",
            () => return Ok(()),
        };
        Err(Error::config("cohort", format!("a lock cannot be passed on inside of a process together with {against}")))
    }
}

fn check_backoff(field: &'static str, backoff: Option<Backoff>) -> Result<()> {
    match backoff {
        Some(Backoff { from, to }) if from.is_zero() || to < from => Err(Error::config(
            field,
            format!("the pause must grow from more than nothing, not from {from:?} to {to:?}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
    fn renewal_can_be_off_or_paced() {
        let off = Options { renew: Some(Renew::Off), ..options() };
        assert_eq!(off.resolve(&Defaults::default()).unwrap().cadence, None);
        let paced = Options { renew: Some(Renew::Every(Duration::from_secs(2))), ..options() };
        assert_eq!(paced.resolve(&Defaults::default()).unwrap().cadence, Some(Duration::from_secs(2)));
    }
}
