//! How a store tells that the session of a hold has ended.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::inspect::BreakRecord;

/// Tells the core that the session a hold lives in has surely ended. The core declares the hold lost at once.
///
/// A backend whose locks live in sessions gives one with each [`Hold`](crate::Hold) and keeps a clone of it. Clones are
/// one and the same.
#[derive(Clone, Default)]
pub struct SessionEnd(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    /// Nobody listens yet.
    #[default]
    Quiet,
    Listening(Box<dyn FnOnce() + Send>),
    /// With the record if an operator broke the hold.
    Told(Option<BreakRecord>),
}

impl SessionEnd {
    /// Of a session that lives.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The session has ended, and the lock with it: surely, not only perhaps. Telling it again changes nothing.
    pub fn tell(&self) {
        self.tell_with(None);
    }

    /// An operator broke the hold, and the backend frees the lock. The core declares the loss with this record. If an end
    /// was told before, this changes nothing.
    pub fn tell_broken(&self, record: BreakRecord) {
        self.tell_with(Some(record));
    }

    fn tell_with(&self, record: Option<BreakRecord>) {
        let mut state = self.state();
        if matches!(*state, State::Told(_)) {
            return;
        }
        let before = std::mem::replace(&mut *state, State::Told(record));
        drop(state);
        if let State::Listening(listener) = before {
            call(listener);
        }
    }

    /// The record that was told with the end. `None` if the session has not ended, or if nobody broke the hold.
    #[must_use]
    pub fn broken_by(&self) -> Option<BreakRecord> {
        match &*self.state() {
            State::Told(record) => record.clone(),
            _ => None,
        }
    }

    /// Calls `listener` once the session has ended; at once if it has. Only the last one that listens is called.
    pub fn listen(&self, listener: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if matches!(*state, State::Told(_)) {
            drop(state);
            return call(Box::new(listener));
        }
        let before = std::mem::replace(&mut *state, State::Listening(Box::new(listener)));
        // Outside of the lock: the former listener's own drop may do anything.
        drop(state);
        drop(before);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backend that watches its sessions must outlive a listener that panics.
fn call(listener: Box<dyn FnOnce() + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(listener));
}

impl fmt::Debug for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(*self.state(), State::Told(_)) { "SessionEnd(told)" } else { "SessionEnd" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn an_end_is_told_once_before_or_after_somebody_listens() {
        let (end, heard) = (SessionEnd::new(), Arc::new(AtomicU32::new(0)));
        let listen = |weight: u32| {
            let heard = heard.clone();
            end.listen(move || {
                heard.fetch_add(weight, Ordering::Relaxed);
            });
        };
        listen(100);
        listen(1);
        end.clone().tell();
        end.tell();
        assert_eq!(heard.load(Ordering::Relaxed), 1);
        listen(10);
        assert_eq!(heard.load(Ordering::Relaxed), 11);
    }

    #[test]
    fn the_first_end_decides_whether_the_hold_was_broken() {
        let record = BreakRecord::new("alice", 17, "hangs");
        let (ended, broken) = (SessionEnd::new(), SessionEnd::new());
        assert_eq!(broken.broken_by(), None);
        ended.tell();
        ended.tell_broken(record.clone());
        assert_eq!(ended.broken_by(), None);
        broken.tell_broken(record.clone());
        broken.tell();
        assert_eq!(broken.broken_by(), Some(record));
    }

    #[test]
    fn a_listener_that_panics_harms_nobody() {
        let end = SessionEnd::new();
        end.listen(|| panic!("a waker may do anything"));
        end.tell();
    }
}
