//! The wait queues that sessions of a runtime are leaving just now.
//!
//! A release is answered before its session leaves the queue. A caller that asks for the same row meanwhile would take
//! the session of its own process for a waiter, and would open another session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The rows whose queues are being left.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<HashMap<Box<str>, watch::Receiver<()>>>);

/// One session's leave. It ends when this is dropped.
pub(crate) struct Leave {
    all: Arc<Leaving>,
    row: Box<str>,
    _ends: watch::Sender<()>,
    end: watch::Receiver<()>,
}

impl Leaving {
    /// Notes that a session begins to leave the queue of this row.
    pub(crate) fn begin(self: &Arc<Self>, row: &str) -> Leave {
        let (ends, end) = watch::channel(());
        self.lock().insert(row.into(), end.clone());
        Leave { all: self.clone(), row: row.into(), _ends: ends, end }
    }

    /// Waits until no session is leaving the queue of this row.
    pub(crate) async fn ended(&self, row: &str) {
        let leaving = self.lock().get(row).cloned();
        if let Some(mut end) = leaving {
            // An error means that the leave has ended.
            while end.changed().await.is_ok() {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut rows = self.all.lock();
        if rows.get(&self.row).is_some_and(|end| end.same_channel(&self.end)) {
            rows.remove(&self.row);
        }
    }
}
