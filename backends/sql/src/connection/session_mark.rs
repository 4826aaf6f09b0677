//! The proof that a session of the server is a certain one, and the sessions that were left in the middle of a statement.
//!
//! A number alone proves nothing: after a restart of the server, or of its container, it may be a stranger's.

use std::sync::{Arc, Mutex, PoisonError};

/// A session, with its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMark {
    /// Its number in the server.
    pub number: i64,
    /// A mark that no other session of this number has.
    pub proof: String,
}

/// A session, after it was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedSession {
    /// There is no such session.
    Gone,
    /// It was there, and ends.
    Ends,
    /// It is of an account that the program had before, and this account may not see it or may not end it.
    OfAnotherAccount,
}

/// Sessions whose last statement has no answer. It may still reach the server, at any time, unless the session is ended there.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftSessions(Arc<Mutex<Vec<SessionMark>>>);

/// A statement under way. Dropped without an answer, its session is left.
pub(crate) struct StatementUnderWay {
    left: LeftSessions,
    mark: Option<SessionMark>,
}

impl LeftSessions {
    pub(crate) fn begin(&self, mark: Option<&SessionMark>) -> StatementUnderWay {
        StatementUnderWay { left: self.clone(), mark: mark.cloned() }
    }

    pub(crate) fn first(&self) -> Option<SessionMark> {
        self.all().first().cloned()
    }

    pub(crate) fn remove(&self, mark: &SessionMark) {
        self.all().retain(|left| left != mark);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<SessionMark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatementUnderWay {
    pub(crate) fn answered(mut self) {
        self.mark = None;
    }
}

impl Drop for StatementUnderWay {
    fn drop(&mut self) {
        self.left.all().extend(self.mark.take());
    }
}
