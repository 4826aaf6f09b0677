//! The log lines of single locks and of outages.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::LossCause;
use tracing::field::display;

use crate::events::event::Event;
use crate::events::line_limit::Kind;
use crate::site::{Label, StoreLabel};

/// A line about one lock: its name, its key, its store with host and port, and the id of its hold. Of a sensitive key it shows
/// the hash.
macro_rules! line_of {
    ($level:ident, $label:expr, $($line:tt)*) => {
        tracing::$level!(
            target: "dlock",
            name = $label.name(),
            key = %$label.shown_key(),
            backend = $label.backend(),
            host = $label.host(),
            hold = $label.hold_id().map(tracing::field::display),
            $($line)*
        )
    };
}
pub(crate) use line_of;

/// A line at this level if it is told, else at the level debug.
macro_rules! line_at {
    ($level:ident if $is_told:expr, $label:expr, $($line:tt)*) => {
        if $is_told {
            line_of!($level, $label, $($line)*);
        } else {
            line_of!(debug, $label, $($line)*);
        }
    };
}

/// The kind of a line with the level warn or error that any number of calls can cause, and its cause or the kind of its error.
pub(super) const fn kind_of(event: &Event) -> Option<Kind> {
    match event {
        // Its line has the level info.
        Event::Lost { cause: LossCause::Shutdown, .. } => None,
        Event::Lost { cause, .. } => Some(("lost", cause.as_str())),
        Event::Failed { kind, .. } => Some(("failed", kind.as_str())),
        Event::NotSettled { kind, .. } => Some(("not settled", kind.as_str())),
        Event::NearExpiry { .. } => Some(("near expiry", "")),
        _ => None,
    }
}

/// Two digits are enough for people: `13.13s`.
pub(crate) fn short(length: Duration) -> String {
    format!("{length:.2?}")
}

/// Writes the line of an event, if it has one.
///
/// `told` is how many further lines of its kind came while it waited; `None` makes a line of the levels warn and error one of the
/// level debug.
pub(super) fn write(label: &Label, event: &Event, told: Option<u64>) {
    let (is_told, left_out) = (told.is_some(), told.filter(|count| *count > 0));
    match event {
        Event::Asked { .. } | Event::Renewed { .. } | Event::Succeeded { .. } | Event::Deadlock { .. } => {}
        Event::Acquired { waited, attempts, .. } => {
            line_of!(debug, label, waited = %short(*waited), attempts, "acquired")
        }
        Event::GivenUp { waited } => line_of!(debug, label, waited = %short(*waited), "given up"),
        Event::Busy { waited } => line_of!(debug, label, waited = %short(*waited), "busy"),
        Event::AlreadyRun { waited } => line_of!(debug, label, waited = %short(*waited), "already run"),
        Event::TimedOut { waited, attempts } => line_of!(debug, label, waited = %short(*waited), attempts, "timed out"),
        Event::Failed { kind, reason, code, waited } => {
            line_at!(warn if is_told, label, left_out, kind = kind.as_str(), reason = &**reason, code = code.as_deref(), waited = %short(*waited), "failed");
        }
        Event::Released { held } => line_of!(debug, label, held = %short(*held), "released"),
        // A shutdown that cuts a body off says so in its report.
        Event::Lost { cause: cause @ LossCause::Shutdown, held, .. } => {
            line_of!(info, label, cause = cause.as_str(), held = %short(*held), "{}", cause.message());
        }
        Event::Lost { cause, held, reason, code } => {
            line_at!(error if is_told, label, left_out, cause = cause.as_str(), held = %short(*held), reason = reason.as_deref(), code = code.as_deref(), "{}", cause.message());
        }
        Event::RenewalFailed { reason, code, remaining } => {
            line_of!(debug, label, reason = &**reason, code = code.as_deref(), remaining = %short(*remaining), "renewal failed");
        }
        Event::ReleaseFailed { reason, code, held } => {
            line_of!(debug, label, reason = &**reason, code = code.as_deref(), held = %short(*held), "release failed");
        }
        Event::NotSettled { kind, held } => {
            line_at!(error if is_told, label, left_out, kind = kind.as_str(), held = %short(*held), "not settled")
        }
        Event::OptionsIgnored { options, holder } => {
            line_of!(debug, label, %options, %holder, "joined a hold, which keeps its own options");
        }
        Event::OrderCycle { elsewhere } => {
            line_of!(warn, label, here = label.place(), %elsewhere, "two locks are taken in opposite orders");
        }
        Event::NearExpiry { remaining } => {
            line_at!(warn if is_told, label, left_out, remaining = %short(*remaining), "near expiry")
        }
    }
}

/// The kind of the lines about holds of this process that operators broke.
pub(crate) const BROKEN: Kind = ("broken", "");

/// An operator has broken a hold of this process. `told` is as in [`write`].
pub(crate) fn write_broken(label: &Label, record: &str, told: Option<u64>) {
    let left_out = told.filter(|count| *count > 0);
    line_at!(warn if told.is_some(), label, left_out, record, "an operator has broken this hold");
}

/// A waiter's place in the store has failed. `told` is as in [`write`].
pub(super) fn write_failed_wait(store: &StoreLabel, kind: &str, why: (&str, Option<&str>), told: Option<u64>) {
    let (left_out, (reason, code)) = (told.filter(|count| *count > 0), why);
    macro_rules! write {
        ($level:ident) => {
            tracing::$level!(
                target: "dlock", backend = &*store.name, host = store.host.as_deref(), left_out, kind, reason, code,
                "a waiter gets no news from the store, and polls"
            )
        };
    }
    if told.is_some() { write!(warn) } else { write!(debug) }
}

/// An error that a function of this return type cannot give to its caller. `told` is as in [`write`].
pub(crate) fn write_untold(what: &str, error: &str, backend: Option<&str>, told: Option<u64>) {
    let left_out = told.filter(|count| *count > 0);
    match told {
        Some(_) => tracing::error!(target: "dlock", backend, left_out, %error, "{what}"),
        None => tracing::debug!(target: "dlock", backend, %error, "{what}"),
    }
}

/// The number of events that this process has left out, since observers or the log were too slow.
pub(super) fn write_dropped(events: u64) {
    let text = "an observer or the log is too slow, so this process has left out events and their lines";
    tracing::warn!(target: "dlock", events, "{text}");
}

/// A line about an outage.
pub(crate) struct OutageLine {
    pub(super) store: StoreLabel,
    pub(super) text: &'static str,
    pub(super) reason: Option<Arc<str>>,
    pub(super) code: Option<Arc<str>>,
    /// How long it has lasted, and what has failed so far. The first line has none.
    pub(super) so_far: Option<(Duration, Counts)>,
}

/// The failures of an outage so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(super) calls: u64,
    pub(super) renewals: u64,
    pub(super) releases: u64,
    pub(super) lost: u64,
}

impl OutageLine {
    pub(super) fn because(self, reason: &Arc<str>, code: &Option<Arc<str>>) -> Self {
        Self { reason: Some(reason.clone()), code: code.clone(), ..self }
    }

    pub(super) const fn kind(&self) -> Kind {
        (self.text, "")
    }

    /// Writes it, at the level debug if it is not told. The next line of the outage has all counts, so none says what was left out.
    pub(super) fn write(&self, told: Option<u64>) {
        let Self { store, text, reason, code, so_far } = self;
        let (lasted, counts) = so_far.map(|(lasted, counts)| (display(short(lasted)), counts)).unzip();
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: "dlock", backend = &*store.name, host = store.host.as_deref(), reason = reason.as_deref(),
                    code = code.as_deref(), lasted, failed_calls = counts.map(|counts| counts.calls),
                    failed_renewals = counts.map(|counts| counts.renewals),
                    failed_releases = counts.map(|counts| counts.releases), lost_holds = counts.map(|counts| counts.lost),
                    "{text}"
                )
            };
        }
        if told.is_some() { write!(warn) } else { write!(debug) }
    }
}
