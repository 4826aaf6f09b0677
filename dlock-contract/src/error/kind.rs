//! The kinds of errors.

use std::time::Duration;

/// Why there is no lock, or no lock any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another owner holds the lock, and the caller did not want to wait.
    Busy,
    /// As many callers of this process as may wait for the key already do; see `max_waiters` of the registry.
    QueueFull {
        /// The bound that was reached.
        max: usize,
    },
    /// The wait ran out while others held the lock.
    WaitTimeout,
    /// The run of this period was started already; see `once_per`.
    AlreadyRun,
    /// The body's own limit ran out.
    BodyTimeout,
    /// The store did not answer usefully: down, unreachable, overloaded, or answering too late to be of use.
    Outage,
    /// The lock was held, but ended before its release. Another holder may have come in since.
    Lost(LossCause),
    /// The enclosing call holds this lock already, so waiting for it would deadlock. Also: a change of the settings
    /// makes another change.
    WouldDeadlock,
    /// No backend is installed under the name.
    BackendNotRegistered {
        /// The names under which backends are installed.
        known: Vec<String>,
    },
    /// A backend is installed under the name already.
    AlreadyRegistered,
    /// The registry was shut down.
    ShutDown,
    /// A setting that cannot be: a URL, a variable, an option.
    ConfigInvalid {
        /// The name of the setting.
        field: String,
    },
    /// A ttl that the store cannot do.
    TtlOutOfRange {
        /// The shortest ttl that it can.
        min: Duration,
        /// The longest ttl that it can.
        max: Duration,
    },
    /// A key longer than allowed.
    KeyTooLong {
        /// The bound, in encoded bytes.
        max: usize,
    },
    /// The store, or its version, or its settings, cannot do what was asked.
    Unsupported {
        /// The missing ability, such as `permits`.
        need: String,
    },
    /// The store refuses the account.
    PermissionDenied,
    /// The server is a replica or read-only: a lock taken there excludes nobody.
    NotPrimary,
    /// The lock's name in the store is used for something else; waiting for it could last for ever.
    KeyConflict,
    /// The data in the store contradict themselves.
    CorruptState,
    /// The table is missing or is not what it must be.
    SchemaMismatch,
    /// The fencing counter has no further number.
    FenceExhausted,
    /// The store gave a fencing token below one that it gave before.
    FenceRegression,
    /// A fenced write came with a token that is older than one already seen: another holder has written since.
    FenceStale {
        /// The newest token seen, or, where the resource does not report it, the lowest possible one.
        seen: u64,
    },
    /// A fenced write came with no token, with zero, or with the token of another lock.
    FenceInvalid,
    /// The store answered something that it never should.
    Protocol,
    /// The row that is to be locked does not exist in the table that the store was opened for.
    NoSuchRow,
    /// The body came to its end, and the store refused to make its work final. Nothing of the work stays.
    CommitRefused,
    /// The body came to its end, and nobody knows whether the store has made its work final.
    CommitUnknown,
    /// Every attempt of an optimistic function met a conflict with another writer. Also: this call and others wait for each
    /// other's locks or rows, and this one has to give way: nothing of its work in the store stays, and it may begin anew.
    Conflict,
    /// A fault inside dlock or the operating system; please report it.
    Internal,
}

/// How a held lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// No renewal was confirmed before the local deadline.
    Deadline,
    /// The store says that another owner or nobody holds the lock.
    Store,
    /// An operator broke the hold; the error's text says who, when and why.
    Broken,
    /// `max_hold` was reached.
    MaxHold,
    /// The registry was shut down and the deadline of the shutdown came.
    Shutdown,
    /// The session that the lock lived in failed at the release: nobody knows whether the lock was ours to the end.
    Unconfirmed,
    /// It was released in order, and its guard was used after that.
    Released,
    /// This nested call has joined the hold of an enclosing call (`reentrant`), and went on outside of that call's body, such
    /// as in another task. The enclosing call holds the lock on.
    LeftBody,
}

impl LossCause {
    /// The cause in one word, for labels and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Store => "store",
            Self::Broken => "broken",
            Self::MaxHold => "max_hold",
            Self::Shutdown => "shutdown",
            Self::Unconfirmed => "unconfirmed",
            Self::Released => "released",
            Self::LeftBody => "left_body",
        }
    }

    /// The text of an error with this cause.
    #[doc(hidden)]
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Deadline => "the lock was lost: no renewal was confirmed in time",
            Self::Store => "the lock was lost: the store says that this owner no longer holds it",
            Self::Broken => "the lock was lost: an operator broke it",
            Self::MaxHold => "the lock was lost: it was held for as long as max_hold allows",
            Self::Shutdown => "the lock was lost: dlock was shut down",
            Self::Unconfirmed => {
                "the lock may have been lost: its session did not answer the release, so nobody knows whether it lived to the end"
            }
            Self::Released => "the lock was released already",
            Self::LeftBody => {
                "the lock was lost: this call has joined the hold of an enclosing call, and went on outside of that call's body, \
                 for example in another task"
            }
        }
    }
}

impl ErrorKind {
    /// The kind's name in one word, for labels and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::QueueFull { .. } => "queue_full",
            Self::WaitTimeout => "wait_timeout",
            Self::AlreadyRun => "already_run",
            Self::BodyTimeout => "body_timeout",
            Self::Outage => "outage",
            Self::Lost(_) => "lost",
            Self::WouldDeadlock => "would_deadlock",
            Self::BackendNotRegistered { .. } => "backend_not_registered",
            Self::AlreadyRegistered => "already_registered",
            Self::ShutDown => "shut_down",
            Self::ConfigInvalid { .. } => "config_invalid",
            Self::TtlOutOfRange { .. } => "ttl_out_of_range",
            Self::KeyTooLong { .. } => "key_too_long",
            Self::Unsupported { .. } => "unsupported",
            Self::PermissionDenied => "permission_denied",
            Self::NotPrimary => "not_primary",
            Self::KeyConflict => "key_conflict",
            Self::CorruptState => "corrupt_state",
            Self::SchemaMismatch => "schema_mismatch",
            Self::FenceExhausted => "fence_exhausted",
            Self::FenceRegression => "fence_regression",
            Self::FenceStale { .. } => "fence_stale",
            Self::FenceInvalid => "fence_invalid",
            Self::Protocol => "protocol",
            Self::NoSuchRow => "no_such_row",
            Self::CommitRefused => "commit_refused",
            Self::CommitUnknown => "commit_unknown",
            Self::Conflict => "conflict",
            Self::Internal => "internal",
        }
    }
}
