//! The end of a request to a session: whether it failed, and whether its session goes on.

use dlock_contract::{Error, ErrorKind};

/// The end of a request: whether its session is kept or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterRequest {
    KeepSession,
    EndSession,
    /// The server has said that it ends the session.
    EndedByServer,
    /// The session at the other end is not ours: there is a pooler between.
    EndConnection,
}

/// The answer to a request, or its failure.
pub(super) type Answered<T> = Result<T, Failure>;

/// A request that has ended, and how its session goes on.
pub(super) type Ended<T> = (Answered<T>, AfterRequest);

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether the session has ended, by this failure or before it.
    pub(super) is_over: bool,
    /// Whether the server has said that it ends the session, in the answer to this request or to another one.
    pub(super) by_server: bool,
}

impl Failure {
    /// A failure after which the session goes on.
    pub(super) fn of(error: Error) -> Self {
        Self { error, is_over: false, by_server: false }
    }

    /// A failure that ends the session.
    pub(super) fn ended_by(error: Error) -> Self {
        Self { is_over: true, ..Self::of(error) }
    }

    pub(super) fn interrupted() -> Self {
        let why = "the server ended the wait for the lock: it is out of memory, or somebody killed the query";
        Self::of(Error::outage(why))
    }

    pub(super) fn of_another_family() -> Self {
        Self::of(Error::new(ErrorKind::KeyConflict, "the key already holds a lock of another mode"))
    }

    pub(super) fn elsewhere() -> Self {
        Self::of(Error::new(
            ErrorKind::Unsupported { need: "a connection that keeps its session".into() },
            "a pooler or proxy before the server gives each request another session, so a named lock cannot be held",
        ))
    }
}
