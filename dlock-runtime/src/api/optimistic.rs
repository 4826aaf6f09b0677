//! Optimistic functions: they take no lock, and run again if another writer was faster.
//!
//! The loop is in the macro's expansion, so that the body may borrow anything. Its decisions are here.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::time::Duration;

use dlock_contract::{Backoff, Error, ErrorKind};
use dlock_store::is_forked;

use crate::acquire::context::Context;
use crate::hold::jitter::full_jitter;

/// An error that knows whether another writer was faster, so that the work should be done again from its start.
///
/// ```
/// # use dlock_runtime as dlock;
/// use dlock::{Conflict, Error};
///
/// enum StockError {
///     /// `UPDATE … WHERE version = …` has changed no row.
///     Stale,
///     SoldOut,
///     Lock(Error),
/// }
///
/// impl Conflict for StockError {
///     fn is_conflict(&self) -> bool {
///         matches!(self, Self::Stale)
///     }
/// }
///
/// // The caller gets this error when the last attempt met a conflict too.
/// impl From<Error> for StockError {
///     fn from(error: Error) -> Self {
///         Self::Lock(error)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell whether it is a conflict with another writer",
    label = "which of these errors are worth another attempt?",
    note = "write `impl dlock::Conflict for {Self}` with `fn is_conflict(&self) -> bool`; wrap an error of another crate in a type of your own"
)]
pub trait Conflict {
    /// Whether another writer was faster.
    fn is_conflict(&self) -> bool;

    /// The last conflict as the cause of the error that says so; `None`, unless this is written.
    fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>>
    where
        Self: Sized,
    {
        None
    }
}

impl Conflict for Error {
    fn is_conflict(&self) -> bool {
        *self.kind() == ErrorKind::Conflict
    }

    fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        Some(self.into())
    }
}

impl Conflict for Box<dyn StdError + Send + Sync> {
    /// Whether this is an [`Error`] of that kind.
    fn is_conflict(&self) -> bool {
        self.downcast_ref::<Error>().is_some_and(Conflict::is_conflict)
    }

    fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        Some(self)
    }
}

/// The number of attempts that were made, and the limit.
#[doc(hidden)]
#[derive(Debug)]
pub struct Attempts {
    made: u32,
    retries: u32,
    backoff: Backoff,
}

impl Attempts {
    #[must_use]
    pub const fn new(retries: u32, backoff: Backoff) -> Self {
        Self { made: 0, retries, backoff }
    }
}

/// A return type of a function that is run again after a conflict.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an optimistic function must be able to say that it met a conflict, and `{Self}` cannot",
    label = "cannot say whether another writer was faster",
    note = "return `Result<T, E>`, with `impl dlock::Conflict for E` to tell which errors are conflicts, and `impl From<dlock::Error> for E` for the one that says that every attempt met one; wrap an error of another crate in a type of your own"
)]
pub trait OptimisticReturn: Sized {
    /// The end, or the pause before the next attempt.
    fn judged(self, attempts: &mut Attempts) -> ControlFlow<Self, Duration>;
}

#[diagnostic::do_not_recommend]
impl<T, E: Conflict + From<Error>> OptimisticReturn for Result<T, E> {
    fn judged(self, attempts: &mut Attempts) -> ControlFlow<Self, Duration> {
        let conflict = match self {
            Err(error) if error.is_conflict() => error,
            done => return ControlFlow::Break(done),
        };
        let Attempts { made, retries, backoff: Backoff { from, to, .. } } = *attempts;
        attempts.made = made.saturating_add(1);
        if made < retries {
            return ControlFlow::Continue(full_jitter(made, from, to));
        }
        let error = Error::new(ErrorKind::Conflict, "each attempt met a conflict with another writer")
            .with_attempts(attempts.made);
        let error = match conflict.into_source() {
            Some(source) => error.because(source),
            None => error,
        };
        ControlFlow::Break(Err(error.into()))
    }
}

/// Sleeps between two attempts; nothing is spawned.
#[doc(hidden)]
pub async fn pause(length: Duration) {
    // In a child after `fork` nobody drives the clock's sleeps.
    if is_forked() {
        return std::thread::sleep(length);
    }
    let clock = &Context::global().shared().clock;
    clock.sleep_until(clock.now().after(length)).await;
}

#[doc(hidden)]
pub fn pause_sync(length: Duration) {
    std::thread::sleep(length);
}

/// One attempt of a function that is not async.
#[doc(hidden)]
pub fn attempt<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));

    fn conflict() -> Result<(), Error> {
        Err(Error::new(ErrorKind::Conflict, "stale").with_key("k"))
    }

    #[test]
    fn a_conflict_is_tried_again_until_the_attempts_are_over() {
        let mut attempts = Attempts::new(3, BACKOFF);
        for bound in [10, 20, 40] {
            let ControlFlow::Continue(pause) = conflict().judged(&mut attempts) else { panic!("no further attempt") };
            assert!(pause <= Duration::from_millis(bound));
        }
        let ControlFlow::Break(Err(error)) = conflict().judged(&mut attempts) else { panic!("a further attempt") };
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Conflict, 4));
        assert!(error.source().expect("the last conflict").to_string().contains("stale"));
    }

    #[test]
    fn an_error_that_is_no_conflict_ends_the_attempts() {
        let mut attempts = Attempts::new(3, BACKOFF);
        let failed: Result<(), Error> = Err(Error::outage("down"));
        assert!(matches!(failed.judged(&mut attempts), ControlFlow::Break(Err(_))));
        assert!(matches!(Ok::<_, Error>(5).judged(&mut attempts), ControlFlow::Break(Ok(5))));
    }
}
