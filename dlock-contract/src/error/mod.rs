//! Errors as values: the kind, the key, the backend, and whether a retry can help.

pub(crate) mod kind;
pub(crate) mod panics;
#[cfg(any(feature = "axum", feature = "tonic"))]
pub(crate) mod web;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub use crate::error::kind::{ErrorKind, LossCause};

/// The longest time that [`Error::retry_after`] gives.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The error of everything here.
///
/// One pointer wide. It never holds a URL, a password or an owner; keys are shown escaped and cut at 128 bytes.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    key: Option<Box<str>>,
    backend: Option<Box<str>>,
    code: Option<Box<str>>,
    holder_trace: Option<Box<str>>,
    attempts: u32,
    retryable: bool,
    never_sent: bool,
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
        Self(Box::new(ErrorInner {
            kind,
            message: message.into(),
            key: None,
            backend: None,
            code: None,
            holder_trace: None,
            attempts: 0,
            retryable,
            never_sent: false,
            retry_after: None,
            source: None,
        }))
    }

    /// The error of a request to a store that was [closed](crate::Backend::close).
    #[must_use]
    pub fn closed() -> Self {
        Self::new(ErrorKind::ShutDown, "the store is closed").never_sent()
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

    /// Says that the request has not left this process, so that nothing of it can be in the store: the opening of a
    /// connection failed, or a check before it. Said falsely, it leaves a lock, or a place in a wait queue, that nobody
    /// gives back.
    #[must_use]
    pub fn never_sent(mut self) -> Self {
        self.0.never_sent = true;
        self
    }

    /// Whether the request that failed may have come to the store.
    #[must_use]
    pub fn may_have_left(&self) -> bool {
        !self.0.never_sent
    }

    /// Adds the server's own code for what went wrong. One that is longer than 32 bytes, or more than letters, digits and
    /// `_`, is no code and is dropped: it could be anything.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        let is_code = (1..=32).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        self.0.code = is_code.then(|| code.into());
        self
    }

    /// Adds the trace id of the holder: that of its [note](crate::Note::trace), if it has one.
    #[must_use]
    pub fn with_holder_trace(mut self, trace: Option<&str>) -> Self {
        self.0.holder_trace = trace.map(Into::into);
        self
    }

    /// The same failure for another waiter of the same request, without its cause.
    pub fn again(&self) -> Self {
        let mut same = Self::new(self.0.kind.clone(), self.0.message.clone()).with_retryable(self.0.retryable);
        same.0.code.clone_from(&self.0.code);
        same.0.never_sent = self.0.never_sent;
        same.with_retry_after(self.0.retry_after)
    }

    /// Names the key.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.0.key.get_or_insert_with(|| cut(key).into());
        self
    }

    /// Shows this in the place of a key, and takes the key out of the texts. Such a text in a cause drops the cause.
    pub(crate) fn without(
        mut self,
        shown: &str,
        has_it: impl Fn(&str) -> bool,
        hide: impl FnOnce(&str) -> String,
    ) -> Self {
        if has_it(&self.0.message) {
            self.0.message = hide(&self.0.message).into();
        }
        self.0.key = Some(shown.into());
        self.0.source.take_if(|source| is_in_chain(&**source, &has_it));
        self
    }

    /// Says with which servers the opening of a store failed, unless the text says so.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        if !self.0.message.contains(place) {
            self.0.message = format!("{}; the URL names {place}", self.0.message).into();
        }
        self
    }

    /// Adds to the error of an opening the advice of the first row whose words the text has.
    #[must_use]
    pub fn advise(mut self, rows: &[(&str, &str)]) -> Self {
        if let Some((_, advice)) = rows.iter().find(|(words, _)| self.0.message.contains(words)) {
            self.0.message = format!("{}; {advice}", self.0.message).into();
        }
        self
    }

    /// Names the backend.
    #[must_use]
    pub fn with_backend(mut self, backend: &str) -> Self {
        self.0.backend.get_or_insert_with(|| backend.into());
        self
    }

    /// Notes how many attempts were made.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// Notes after which time a retry can help, if the store has reported it.
    #[must_use]
    pub fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    /// The time after which the store says that it will answer otherwise.
    pub fn told_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The failure in words, without the key and the other parts that [`Display`](fmt::Display) adds.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The kind of the failure.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The lock's name, or its key alone where the store could not name it yet; cut at 128 bytes. `None` where no key was
    /// concerned.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The name under which the backend is installed.
    #[must_use]
    pub fn backend(&self) -> Option<&str> {
        self.0.backend.as_deref()
    }

    /// The server's own code for what went wrong, if it gave one: `OOM` or `LOADING` of Redis, error numbers of MySQL and
    /// MariaDB. For programs that treat one [`Outage`](ErrorKind::Outage) otherwise than another; the kind says what it
    /// means for a lock.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The trace id of the holder that kept the lock from this caller, if that holder gave one. Only of an error of
    /// contention.
    #[must_use]
    pub fn holder_trace(&self) -> Option<&str> {
        self.0.holder_trace.as_deref()
    }

    /// How many times the store was asked.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Whether a retry can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// The time after which a retry is worth it: the rest of the present holder's lease, or of the time in which the
    /// store grants nothing after a restart, if the store reports it. At most 5 s. A holder that is alive renews its
    /// lease, so its end says little about when the lock will be free. With 30 s, a caller would come back long after
    /// that.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after.map(|after| after.min(MOST_RETRY_AFTER))
    }

    /// Whether others have the lock, its wait queue, or the period's run.
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Busy | ErrorKind::QueueFull { .. } | ErrorKind::WaitTimeout | ErrorKind::AlreadyRun
        )
    }

    /// Whether the lock was lost while it was held.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Lost(_))
    }
}

/// Whether the error, one of its causes, or their `Debug` contains a text for which `has_it` is true.
fn is_in_chain(error: &(dyn StdError + 'static), has_it: &impl Fn(&str) -> bool) -> bool {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.into_iter().any(|error| has_it(&error.to_string()) || has_it(&format!("{error:?}")))
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
            .field("code", &self.0.code)
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
    fn an_error_drops_a_code_that_is_not_one_short_word() {
        let code = |code: &str| Error::outage("x").with_code(code).code().map(str::to_owned);
        assert_eq!(code("OOM").as_deref(), Some("OOM"));
        assert_eq!((code(""), code("two words"), code("p@ss"), code(&"A".repeat(33))), (None, None, None, None));
        assert_eq!(Error::outage("x").code(), None);
    }

    #[test]
    fn an_error_keeps_the_first_key_that_it_gets() {
        let error = Error::outage("x").with_key("inner").with_key("outer");
        assert_eq!(error.key(), Some("inner"));
    }
}
