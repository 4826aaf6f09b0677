//! The rooms that sessions of a runtime are leaving just now.
//!
//! A release is answered before its session leaves the room. A caller that asks for the same row meanwhile would take its
//! own process's session for a waiter, and would open another session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The rows whose rooms are being left.
#[derive(Default)]
pub(crate) struct Leaving(Mutex<HashMap<Box<str>, watch::Receiver<()>>>);

/// The leaving of one room. It has ended when this is dropped.
pub(crate) struct Departure {
    all: Arc<Leaving>,
    row: Box<str>,
    _ends: watch::Sender<()>,
    end: watch::Receiver<()>,
}

impl Leaving {
    /// A session begins to leave the room of this row.
    pub(crate) fn begin(self: &Arc<Self>, row: &str) -> Departure {
        let (ends, end) = watch::channel(());
        self.lock().insert(row.into(), end.clone());
        Departure { all: self.clone(), row: row.into(), _ends: ends, end }
    }

    /// Waits until no session is leaving the room of this row.
    pub(crate) async fn ended(&self, row: &str) {
        let leaving = self.lock().get(row).cloned();
        if let Some(mut end) = leaving {
            // An error: it has ended.
            while end.changed().await.is_ok() {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut rows = self.all.lock();
        if rows.get(&self.row).is_some_and(|end| end.same_channel(&self.end)) {
            rows.remove(&self.row);
        }
    }
}
