//! What can go wrong, as values: what, which key, which backend, whether a retry can help.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::backend::Fence;

/// Why there is no lock, or no lock any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock, and the caller did not want to wait.
    Busy,
    /// So many callers of this process wait for the key already; see `max_waiters` of the registry.
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
    /// The enclosing call holds this very lock: waiting for it would never end.
    WouldDeadlock,
    /// No backend is installed under the name.
    BackendNotRegistered {
        /// The names that are.
        known: Vec<String>,
    },
    /// A backend is installed under the name already.
    AlreadyRegistered,
    /// The registry was shut down.
    ShutDown,
    /// A setting that cannot be: a URL, a variable, an option.
    ConfigInvalid {
        /// Which one.
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
        /// What would be needed.
        need: String,
    },
    /// The store refuses the account.
    PermissionDenied,
    /// The server is a replica or read-only: a lock taken there excludes nobody.
    NotPrimary,
    /// Something that is not ours stands under the lock's name; waiting for it could last for ever.
    KeyConflict,
    /// What stands in the store contradicts itself.
    CorruptState,
    /// The table is missing or is not what it must be.
    SchemaMismatch,
    /// The fencing counter has no further number.
    FenceExhausted,
    /// The store gave a fencing token below one that it gave before.
    FenceRegression,
    /// A fenced write came with a token that is older than one already seen: somebody else has written since.
    FenceStale {
        /// The newest token seen.
        seen: u64,
    },
    /// A fenced write came with no token, with zero, or with the token of another lock.
    FenceInvalid,
    /// The store answered something that it never should.
    Protocol,
    /// Every attempt of an optimistic function met a conflict with another writer.
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
    /// The store says that the lock is not ours any more.
    Store,
    /// `max_hold` was reached.
    MaxHold,
    /// The registry was shut down and the deadline of the shutdown came.
    Shutdown,
    /// It was released in order, and somebody has looked at it since.
    Released,
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
            Self::Conflict => "conflict",
            Self::Internal => "internal",
        }
    }
}

/// The longest that [`Error::retry_after`] tells anybody to stay away.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The error of everything here.
///
/// One pointer wide. It never holds a URL, a password or an owner; keys are shown escaped and cut at 128 bytes.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    key: Option<Box<str>>,
    backend: Option<Box<str>>,
    attempts: u32,
    retryable: bool,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this kind. Backends outside this crate make theirs with it too.
    ///
    /// `Busy`, `QueueFull`, `WaitTimeout`, `Conflict` and `Outage` start as retryable, all others as not.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::Busy
                | ErrorKind::QueueFull { .. }
                | ErrorKind::WaitTimeout
                | ErrorKind::Conflict
                | ErrorKind::Outage
        );
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            key: None,
            backend: None,
            attempts: 0,
            retryable,
            retry_after: None,
            source: None,
        }))
    }

    /// A store that did not answer usefully.
    #[must_use]
    pub fn outage(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Outage, message)
    }

    /// A setting that cannot be.
    #[must_use]
    pub fn config(field: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::ConfigInvalid { field: field.into() }, message)
    }

    /// Adds the cause. Its text is shown, so it must hold no secret: drop the cause of an unreadable URL.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says whether trying again can help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.0.key.get_or_insert_with(|| cut(key).into());
        self
    }

    pub(crate) fn with_backend(mut self, backend: &str) -> Self {
        self.0.backend.get_or_insert_with(|| backend.into());
        self
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    pub(crate) fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    /// What went wrong in words, without the key and what else [`Display`](fmt::Display) adds.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The lock's name, cut at 128 bytes; `None` where no key was concerned.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> Option<&str> {
        self.0.backend.as_deref()
    }

    /// How many times the store was asked.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Can trying again help?
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// When trying again is worth it, if the store told how long the present holder's lease still runs: when that ends,
    /// and in 5 s at the latest. A holder that is alive renews its lease, so its end says little about when the lock
    /// will be free; who was told 30 s would come back long after that.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after.map(|after| after.min(MOST_RETRY_AFTER))
    }

    /// Is the lock, its line, or the period's run simply taken by others?
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Busy | ErrorKind::QueueFull { .. } | ErrorKind::WaitTimeout | ErrorKind::AlreadyRun
        )
    }

    /// Was the lock lost while it was held?
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Lost(_))
    }

    /// The error of a fenced write with an old token.
    #[must_use]
    pub fn fence_stale(given: &Fence, seen: u64) -> Self {
        Self::new(
            ErrorKind::FenceStale { seen },
            format!(
                "the write carries token {given}, but {seen} was seen already: the lock has gone to another holder"
            ),
        )
    }
}

/// Cuts at 128 bytes. A key is printable ASCII already, so no character is split and nothing needs escaping.
fn cut(key: &str) -> String {
    match key.get(..128) {
        Some(head) if key.len() > 128 => format!("{head}…"),
        _ => key.to_owned(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(key) = &self.0.key {
            write!(f, "; key {key}")?;
        }
        if let Some(backend) = &self.0.backend {
            write!(f, "; backend {backend}")?;
        }
        if self.0.attempts > 0 {
            write!(f, "; {} attempt{}", self.0.attempts, if self.0.attempts == 1 { "" } else { "s" })?;
        }
        write!(
            f,
            " ({}, {})",
            self.0.kind.as_str(),
            if self.0.retryable { "a retry can help" } else { "a retry cannot help" }
        )
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("key", &self.0.key)
            .field("backend", &self.0.backend)
            .field("attempts", &self.0.attempts)
            .field("retryable", &self.0.retryable)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Error> for std::io::Error {
    /// For functions that return an `io::Result`; the error itself is inside, see [`std::io::Error::get_ref`].
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_whether_a_retry_helps() {
        let error = Error::outage("no answer").with_key("dl1:shop:stock:<1>").with_backend("redis").with_attempts(3);
        assert_eq!(
            error.to_string(),
            "no answer; key dl1:shop:stock:<1>; backend redis; 3 attempts (outage, a retry can help)"
        );
        assert_eq!(std::mem::size_of::<Error>(), std::mem::size_of::<usize>());
    }

    #[test]
    fn a_long_key_is_cut() {
        let error = Error::new(ErrorKind::Busy, "busy").with_key(&"k".repeat(4000));
        assert_eq!(error.key().unwrap().chars().count(), 129);
    }

    #[test]
    fn the_first_context_stays() {
        let error = Error::outage("x").with_key("inner").with_key("outer");
        assert_eq!(error.key(), Some("inner"));
    }
}
