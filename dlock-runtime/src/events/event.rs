//! The events of one lock.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, LossCause, OncePer};

/// An event of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A call asks for the lock. Exactly one further event says how that ends: [`Acquired`](Self::Acquired), [`Busy`](Self::Busy),
    /// [`AlreadyRun`](Self::AlreadyRun), [`TimedOut`](Self::TimedOut), [`Failed`](Self::Failed) or [`GivenUp`](Self::GivenUp).
    /// A call that joins the hold of an enclosing call asks for nothing. Not in the log.
    Asked {
        /// The longest wait; `None` for a call that does not wait, or waits without end.
        wait: Option<Duration>,
        /// The longest hold; `None` for a leadership without one.
        max_hold: Option<Duration>,
        /// The periods of `once_per`.
        once_per: Option<OncePer>,
    },
    /// The caller dropped the call before its end, as a `select!` or a timeout does.
    GivenUp {
        /// From the call to the drop.
        waited: Duration,
    },
    /// The lock was acquired. Exactly one further event says how the hold ends: [`Released`](Self::Released),
    /// [`Lost`](Self::Lost) or [`NotSettled`](Self::NotSettled).
    Acquired {
        /// From the call to the grant.
        waited: Duration,
        /// How many times the store was asked.
        attempts: u32,
        /// The way on which the lock came to this caller.
        way: GrantWay,
        /// The fencing token, if the store gives one. Of an election it is the term.
        token: Option<u64>,
    },
    /// Another owner held it, and the caller did not want to wait.
    Busy {
        /// From the call to the answer.
        waited: Duration,
    },
    /// The run of this period was started already.
    AlreadyRun {
        /// From the call to the answer.
        waited: Duration,
    },
    /// The wait ran out.
    TimedOut {
        /// The length of the wait.
        waited: Duration,
        /// How many times the store was asked.
        attempts: u32,
    },
    /// The acquisition ended with an error that is no contention: the store is down, or the request is invalid.
    Failed {
        /// The kind of the error.
        kind: ErrorKind,
        /// The words of the error.
        reason: Arc<str>,
        /// The server's own code, as [`Error::code`].
        code: Option<Arc<str>>,
        /// From the call to the error.
        waited: Duration,
    },
    /// The lock was released.
    Released {
        /// From the grant to the release.
        held: Duration,
    },
    /// The lock was lost while it was held.
    Lost {
        /// The cause of the loss.
        cause: LossCause,
        /// From the grant to the loss.
        held: Duration,
        /// The error of the last renewal, if that failed. If the lease has ended without such an error, it was not
        /// renewed in time: this process stood still, or the store has not answered yet.
        reason: Option<Arc<str>>,
        /// The server's own code for this error, as [`Error::code`].
        code: Option<Arc<str>>,
    },
    /// A renewal has prolonged the hold. Not in the log.
    Renewed {
        /// The time that was left until the loss.
        remaining: Duration,
        /// The ttl of the hold.
        ttl: Duration,
        /// The age of the hold. A hold that was passed on (`cohort`) begins then.
        held: Duration,
    },
    /// A renewal failed. The lock is still held until its validity ends.
    ///
    /// Observers hear of each failure. The log has a warning when a store begins to fail, one every 30 s with counts,
    /// and one at the end. Each single failure has the level debug.
    RenewalFailed {
        /// The words of the error.
        reason: Arc<str>,
        /// The server's own code, as [`Error::code`].
        code: Option<Arc<str>>,
        /// The time until the lock is lost.
        remaining: Duration,
    },
    /// A release failed. If no retry succeeds, the ttl frees the lock.
    ReleaseFailed {
        /// The words of the error.
        reason: Arc<str>,
        /// The server's own code, as [`Error::code`].
        code: Option<Arc<str>>,
        /// From the grant to this failure.
        held: Duration,
    },
    /// The body came to its end, and the store did not make its work final, or nobody knows whether it did.
    NotSettled {
        /// Which of the two: [`ErrorKind::CommitRefused`] or [`ErrorKind::CommitUnknown`].
        kind: ErrorKind,
        /// From the grant to the end of the body.
        held: Duration,
    },
    /// A run of a task that is recorded (`once_per`, or `record`) has succeeded, and the store has noted it. Not in the log.
    Succeeded {
        /// The time of the record, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The call was refused, because it would have waited for itself, or for calls that wait for it. If the call had
    /// asked for the lock, [`Failed`](Self::Failed) follows. Not in the log.
    Deadlock {
        /// [`ErrorKind::WouldDeadlock`], or [`ErrorKind::Conflict`] if the store has found the deadlock.
        kind: ErrorKind,
    },
    /// Locks are taken in two orders in this program, which can make two callers wait for each other. Reported once for
    /// each pair, in debug builds only.
    OrderCycle {
        /// Where the other order is taken.
        elsewhere: Arc<str>,
    },
    /// A nested call with `reentrant` has joined the hold of an enclosing call, and some of its own options have no effect: the
    /// hold keeps its own.
    OptionsIgnored {
        /// The names of the options: `ttl, max_hold`.
        options: Arc<str>,
        /// Where the enclosing call has taken the lock.
        holder: Arc<str>,
    },
    /// Less than a fifth of the ttl is left: the body takes longer than the ttl, or renewals fail.
    NearExpiry {
        /// The time that is left.
        remaining: Duration,
    },
}

impl Event {
    /// An acquisition that ended with this error.
    pub(crate) fn failed(error: &Error, waited: Duration) -> Self {
        Self::Failed { kind: error.kind().clone(), reason: error.message().into(), code: code(error), waited }
    }

    /// A loss that no failed renewal explains.
    pub(crate) const fn lost(cause: LossCause, held: Duration) -> Self {
        Self::Lost { cause, held, reason: None, code: None }
    }

    /// A renewal that ended with this error.
    pub(crate) fn renewal_failed(error: &Error, remaining: Duration) -> Self {
        Self::RenewalFailed { reason: error.message().into(), code: code(error), remaining }
    }

    /// A release that ended with this error.
    pub(crate) fn release_failed(error: &Error, held: Duration) -> Self {
        Self::ReleaseFailed { reason: error.message().into(), code: code(error), held }
    }
}

fn code(error: &Error) -> Option<Arc<str>> {
    error.code().map(Into::into)
}

/// The way on which a lock came to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrantWay {
    /// The caller has asked the store for it.
    Request,
    /// A caller of this process has asked for it with the release of its own hold.
    Release,
    /// A caller of this process has passed its hold on (`cohort`). The store was not asked.
    Cohort,
    /// The store has granted it to the first of its wait queue.
    Queue,
}

impl GrantWay {
    /// The way in one word, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Release => "release",
            Self::Cohort => "cohort",
            Self::Queue => "queue",
        }
    }
}
