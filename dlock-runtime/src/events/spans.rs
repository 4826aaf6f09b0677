//! Spans of waits and holds, as children of the caller's span, with the target `dlock::spans` and the level debug.
//!
//! Nobody enters them, so they do not change the lines of the body's own log. A layer is the user's: it may panic, and our own
//! thread makes and ends no span.

use std::fmt;

use dlock_contract::engine::caught;
use dlock_contract::{Error, Result};
use dlock_store::{drop_elsewhere, is_ours};
use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;

use crate::site::Label;

/// The span of a wait or of a hold. Without a subscriber at the level debug it is nothing, and costs one load.
#[derive(Default)]
pub(crate) struct LockSpan(Option<Box<Span>>);

/// A span of this name about one lock.
macro_rules! span_of {
    ($name:literal, $label:expr $(, $($field:tt)*)?) => {
        tracing::debug_span!(
            target: "dlock::spans",
            $name,
            name = $label.name(),
            key = %$label.shown_key(),
            backend = $label.backend(),
            host = $label.host(),
            hold = $label.hold_id().map(tracing::field::display),
            outcome = Empty,
            $($($field)*)?
        )
    };
}

impl LockSpan {
    /// From the call to its end.
    pub(crate) fn wait(label: impl FnOnce() -> Option<Label>) -> Self {
        Self::begin(|| label().map(|label| span_of!("dlock.wait", label, holder_trace = Empty)))
    }

    /// From the grant to the release, or to the end of a body that has lost its lock.
    pub(crate) fn hold(label: &Label) -> Self {
        Self::begin(|| Some(span_of!("dlock.hold", label)))
    }

    fn begin(span: impl FnOnce() -> Option<Span>) -> Self {
        if LevelFilter::current() < LevelFilter::DEBUG || is_ours() {
            return Self(None);
        }
        Self(caught(span).flatten().filter(|span| !span.is_disabled()).map(Box::new))
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Notes how a wait ended. An error of contention names the trace of the holder.
    pub(crate) fn waited<T>(&self, ended: &Result<T>) {
        let Some(span) = &self.0 else { return };
        caught(|| {
            span.record("outcome", ended.as_ref().err().map_or("acquired", |error| error.kind().as_str()));
            if let Some(trace) = ended.as_ref().err().and_then(Error::holder_trace) {
                span.record("holder_trace", trace);
            }
        });
    }

    /// Notes how a hold ended, and ends its span.
    pub(crate) fn held(mut self, outcome: &'static str) {
        if let Some(span) = self.0.take() {
            caught(|| drop_elsewhere(EndedSpan { span, outcome }));
        }
    }
}

/// The span of a hold that has ended. Its drop notes the outcome.
struct EndedSpan {
    span: Box<Span>,
    outcome: &'static str,
}

impl Drop for EndedSpan {
    fn drop(&mut self) {
        caught(|| self.span.record("outcome", self.outcome));
    }
}

impl Drop for LockSpan {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            caught(|| drop_elsewhere(span));
        }
    }
}

impl fmt::Debug for LockSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockSpan")
    }
}
