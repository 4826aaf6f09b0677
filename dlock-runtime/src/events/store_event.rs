//! Events of a store, not of one lock: requests and how they ended.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind};

/// An event of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A request of the engine to a store has ended. Each request has exactly one such event. A request is a call of the store's
    /// code: it may cost several round trips, or share one with other requests. Not in the log.
    Requested {
        /// The work that the store was asked for.
        operation: Operation,
        /// How it ended.
        outcome: RequestOutcome,
        /// From the call to the answer.
        took: Duration,
    },
    /// This process has broken a hold, at the wish of an operator.
    BrokeHold,
}

/// The work that a store is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// One attempt to take a lock.
    Acquire,
    /// One attempt to take several locks together.
    AcquireAll,
    /// The renewal of one hold or of several.
    Renew,
    /// The release of a lock.
    Release,
    /// A release that also asks for the lock for the next caller of this process.
    ReleaseToNext,
    /// The end of an attempt that may have left something in the store.
    Abandon,
    /// Fencing tokens for callers of one process that pass a hold on among themselves.
    Reserve,
    /// Making the work of a body final.
    Settle,
    /// A look at locks: holders, listings, records of runs and of broken holds.
    Inspect,
    /// Breaking a hold.
    Break,
    /// A readiness probe.
    Ready,
    /// The end of all connections.
    Close,
}

impl Operation {
    /// Whether an answer proves that the store accepts writes. A store that refuses them still answers reads.
    pub(crate) const fn takes_or_keeps(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireAll | Self::Renew | Self::Reserve | Self::ReleaseToNext)
    }

    /// The operation in one word, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::AcquireAll => "acquire_all",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::ReleaseToNext => "release_to_next",
            Self::Abandon => "abandon",
            Self::Reserve => "reserve",
            Self::Settle => "settle",
            Self::Inspect => "inspect",
            Self::Break => "break",
            Self::Ready => "ready",
            Self::Close => "close",
        }
    }
}

/// How a request to a store ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// The store has answered. A lock that somebody else holds is an answer too.
    Answered,
    /// A guard in the store grants nothing yet, and the store has said for how long, as after a restart without its data.
    Guarded,
    /// The request has failed with an error of this kind. Silence is [`ErrorKind::Outage`].
    Failed(ErrorKind),
    /// The caller dropped its call.
    GivenUp,
}

impl RequestOutcome {
    pub(crate) fn of(error: Option<&Error>) -> Self {
        match error {
            None => Self::Answered,
            Some(error) if *error.kind() == ErrorKind::Outage && error.told_after().is_some() => Self::Guarded,
            Some(error) => Self::Failed(error.kind().clone()),
        }
    }

    /// The outcome in one word, for labels: `answered`, `guarded`, `given_up`, or the kind of the error.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Guarded => "guarded",
            Self::Failed(kind) => kind.as_str(),
            Self::GivenUp => "given_up",
        }
    }
}
