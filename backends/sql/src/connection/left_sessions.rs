//! The sessions that were left in the middle of a statement.

use std::sync::{Arc, Mutex, PoisonError};

use crate::dialect::SessionMark;

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
