//! The return types of annotated functions: each must be able to say that the body did not run.

use std::sync::Arc;

use dlock_contract::{Error, ErrorKind};
use dlock_store::{Seldom, line};

use crate::acquire::thread_registry;
use crate::api::key_of;
use crate::events::lines;

/// The outcome of an annotated call. [`LockReturn`] and [`SkipReturn`] turn it into the function's return value.
#[doc(hidden)]
#[derive(Debug)]
pub enum Ran<T> {
    /// The body ran, and the lock was held until it had ended.
    Done(T),
    /// The body did not run, or was cut off by its own limit.
    Failed(Error),
    /// The lock was lost; the body's output, if it had come to its end.
    Lost(Error, Option<T>),
}

/// How a call under a lock ended: one variant for each way. A return type for functions whose callers treat the endings
/// in different ways.
///
/// ```
/// # use dlock_runtime as dlock;
/// use dlock::Outcome;
/// fn say(outcome: Outcome<u32>) -> String {
///     match outcome {
///         Outcome::Ran(n) => format!("took {n}"),
///         Outcome::Busy(_) | Outcome::WaitTimeout(_) => "another caller is doing it".into(),
///         Outcome::Lost(result, _) => format!("not covered by the lock to its end: {result:?}"),
///         other => format!("failed: {other:?}"),
///     }
/// }
/// assert_eq!(say(3.into()), "took 3");
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the body may not have run"]
pub enum Outcome<T> {
    /// The body ran, and the lock was held until the body's end.
    Ran(T),
    /// Another owner holds the lock, or has started this period's run. The body did not run.
    Busy(Error),
    /// The wait ran out; the body did not run.
    WaitTimeout(Error),
    /// The body's own limit ran out; it was dropped, and the lock given back.
    BodyTimeout(Error),
    /// The store did not answer usefully; the body did not run.
    Outage(Error),
    /// The lock was lost while the body ran; its result, if it came to its end all the same.
    Lost(Option<T>, Error),
    /// The body did not run: the call cannot be as it is. See [`Error::kind`].
    Refused(Error),
}

impl<T> From<T> for Outcome<T> {
    fn from(result: T) -> Self {
        Self::Ran(result)
    }
}

impl<T> Outcome<T> {
    /// The result of a body that ran under the lock to its end, or the error.
    ///
    /// # Errors
    /// The error of every other outcome.
    pub fn into_result(self) -> Result<T, Error> {
        match self {
            Self::Ran(result) => Ok(result),
            Self::Busy(error)
            | Self::WaitTimeout(error)
            | Self::BodyTimeout(error)
            | Self::Outage(error)
            | Self::Lost(_, error)
            | Self::Refused(error) => Err(error),
        }
    }

    fn failed(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::QueueFull { .. } | ErrorKind::AlreadyRun => Self::Busy(error),
            ErrorKind::WaitTimeout => Self::WaitTimeout(error),
            ErrorKind::BodyTimeout => Self::BodyTimeout(error),
            ErrorKind::Outage => Self::Outage(error),
            _ => Self::Refused(error),
        }
    }
}

/// An error of the caller's that the lock's error becomes: whatever is `From<dlock::Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a `dlock::Error`, which a locked function must be able to return",
    label = "for an error of your own write `impl From<dlock::Error>`; wrap one of another crate in a type of your own",
    note = "or return `Result<T, dlock::Error>`, `Result<T, Box<dyn std::error::Error + Send + Sync>>`, or `dlock::Outcome<T>`, which tells every way apart"
)]
pub trait CarriesError: Sized {
    /// Makes it.
    #[doc(hidden)]
    fn carry(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> CarriesError for E {
    fn carry(error: Error) -> Self {
        error.into()
    }
}

/// A return type that can carry the lock's error.
#[diagnostic::on_unimplemented(
    message = "a locked function must be able to say that the lock failed, and `{Self}` cannot",
    label = "cannot carry a `dlock::Error`",
    note = "a `Result` can if its error can be made from a `dlock::Error`: for an error of your own write `impl From<dlock::Error> for YourError`; wrap an error of another crate, such as a `StatusCode`, in a type of your own",
    note = "else return `Result<T, dlock::Error>` or `Result<T, Box<dyn std::error::Error + Send + Sync>>`",
    note = "or return `dlock::Outcome<T>`, which tells every way apart",
    note = "or let the function be skipped while others hold the lock: `on_busy = \"skip\"`, and return `Option<T>` or nothing"
)]
pub trait LockReturn: Sized {
    /// Makes the return value.
    #[doc(hidden)]
    fn from_ran(ran: Ran<Self>) -> Self;

    /// Whether the body succeeded, for the record of the last success.
    #[doc(hidden)]
    fn succeeded(&self) -> bool;
}

impl<T, E: CarriesError> LockReturn for Result<T, E> {
    fn from_ran(ran: Ran<Self>) -> Self {
        match ran {
            Ran::Done(output) => output,
            // If the body itself has failed, its error wins; the loss was reported as an event.
            Ran::Lost(_, Some(Err(error))) => Err(error),
            Ran::Failed(error) | Ran::Lost(error, _) => Err(E::carry(error)),
        }
    }

    fn succeeded(&self) -> bool {
        self.is_ok()
    }
}

impl<T> LockReturn for Outcome<T> {
    fn from_ran(ran: Ran<Self>) -> Self {
        match ran {
            Ran::Done(output) => output,
            Ran::Failed(error) => Self::failed(error),
            Ran::Lost(error, None) => Self::Lost(None, error),
            Ran::Lost(error, Some(Self::Ran(result))) => Self::Lost(Some(result), error),
            // The body's own error wins, as for a `Result`.
            Ran::Lost(_, Some(own)) => own,
        }
    }

    fn succeeded(&self) -> bool {
        matches!(self, Self::Ran(_))
    }
}

/// A return type of a function that is skipped while others hold its lock.
#[diagnostic::on_unimplemented(
    message = "a function that may be skipped must be able to say so, and `{Self}` cannot",
    label = "cannot say that the function was skipped",
    note = "return nothing, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>` with an `E: From<dlock::Error>`, or `dlock::Outcome<T>`"
)]
pub trait SkipReturn: Sized {
    /// Makes the return value, where contention or an outage, or both, are no errors.
    #[doc(hidden)]
    fn from_ran(ran: Ran<Self>, skip: Skip) -> Self;

    /// Whether the body succeeded, for the record of the last success.
    #[doc(hidden)]
    fn succeeded(&self) -> bool;
}

/// The errors after which the call skips its body and returns a value.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    pub busy: bool,
    pub outage: bool,
}

impl Skip {
    fn covers(self, error: &Error) -> bool {
        (self.busy && error.is_contention()) || (self.outage && *error.kind() == ErrorKind::Outage)
    }
}

/// A value that means "did not run".
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the function was skipped",
    label = "cannot say that the function was skipped",
    note = "return `Result<(), E>` or `Result<Option<T>, E>`"
)]
pub trait Skipped: Sized {
    /// That value.
    #[doc(hidden)]
    fn skipped() -> Self;

    /// That value. The type cannot carry the error, so the log has it: once a minute for each text, store and kind of error, since in
    /// an outage all calls fail. It is one of the lines of the store, of which there is one a second. The level debug has each one.
    #[doc(hidden)]
    fn untold(error: &Error, what: &'static str) -> Self {
        static TOLD: Seldom = Seldom::new();
        if !key_of::is_key_query() {
            let kind = (what, error.kind().as_str());
            let is_told = TOLD.passes(format!("{kind:?} {:?}", error.backend()));
            let (backend, error) = (error.backend().map(Arc::<str>::from), error.to_string());
            let store = backend.clone().unwrap_or_default();
            let write = move |told| lines::write_untold(what, &error, backend.as_deref(), told);
            match is_told {
                true => thread_registry::here().shared().events.in_turn(&store, kind, write),
                false => line(move || write(None)),
            }
        }
        Self::skipped()
    }
}

impl Skipped for () {
    fn skipped() -> Self {}
}

impl<T> Skipped for Option<T> {
    fn skipped() -> Self {
        None
    }
}

impl SkipReturn for () {
    fn from_ran(ran: Ran<Self>, skip: Skip) -> Self {
        without_error(ran, skip)
    }

    fn succeeded(&self) -> bool {
        true
    }
}

impl<T> SkipReturn for Option<T> {
    fn from_ran(ran: Ran<Self>, skip: Skip) -> Self {
        without_error(ran, skip)
    }

    fn succeeded(&self) -> bool {
        true
    }
}

/// For types that can only say that the body did not run.
fn without_error<S: Skipped>(ran: Ran<S>, skip: Skip) -> S {
    match ran {
        Ran::Done(output) => output,
        Ran::Failed(error) if skip.covers(&error) => S::skipped(),
        Ran::Failed(error) => S::untold(&error, "the locked function did not run to its end"),
        Ran::Lost(error, _) => S::untold(&error, "the locked function has lost its lock"),
    }
}

impl<T: Skipped, E: CarriesError> SkipReturn for Result<T, E> {
    fn from_ran(ran: Ran<Self>, skip: Skip) -> Self {
        match ran {
            Ran::Failed(error) if skip.covers(&error) => Ok(T::skipped()),
            ran => LockReturn::from_ran(ran),
        }
    }

    fn succeeded(&self) -> bool {
        LockReturn::succeeded(self)
    }
}

impl<T> SkipReturn for Outcome<T> {
    /// An `Outcome` says what happened, so nothing is skipped.
    fn from_ran(ran: Ran<Self>, _: Skip) -> Self {
        LockReturn::from_ran(ran)
    }

    fn succeeded(&self) -> bool {
        LockReturn::succeeded(self)
    }
}

/// Tells the compiler the body's type, in code that never runs.
#[doc(hidden)]
pub fn unreached<T>() -> T {
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_loss_the_bodys_own_failure_wins() {
        let lost = || Error::new(ErrorKind::Lost(crate::LossCause::Deadline), "lost");
        let ended = |own: Option<Outcome<u32>>| LockReturn::from_ran(Ran::Lost(lost(), own));
        assert!(matches!(ended(None), Outcome::<u32>::Lost(None, _)));
        assert!(matches!(ended(Some(7.into())), Outcome::Lost(Some(7), error) if error.is_lost()));
        assert!(matches!(ended(Some(Outcome::Outage(Error::outage("its own")))), Outcome::Outage(_)));
        let inner = Outcome::Lost(Some(3), Error::new(ErrorKind::Internal, "of another lock"));
        assert!(matches!(ended(Some(inner)), Outcome::Lost(Some(3), error) if !error.is_lost()));
    }
}
