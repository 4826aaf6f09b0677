//! The tasks that are woken when one hold is lost: the task that runs the body, and others that listen.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::sync::wake;

/// The tasks that a loss wakes.
#[derive(Debug, Default)]
pub(crate) struct LossListeners {
    /// The task that runs the body. There is one, so it needs no number.
    body: Option<Waker>,
    /// Absent until there is one.
    others: Option<Box<Others>>,
}

#[derive(Debug, Default)]
struct Others {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl LossListeners {
    /// Registers the task that runs the body. Returns the waker that it replaces.
    pub(crate) fn listen(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.body {
            Some(known) if known.will_wake(waker) => None,
            _ => self.body.replace(waker.clone()),
        }
    }

    /// Registers another task by its number; zero draws a new one. Returns the number and the waker that it replaces.
    pub(crate) fn listen_beside(&mut self, mut id: u64, waker: &Waker) -> (u64, Option<Waker>) {
        let others = self.others.get_or_insert_default();
        if id == 0 {
            others.last += 1;
            id = others.last;
        }
        (id, others.wakers.insert(id, waker.clone()))
    }

    /// Removes the task with this number, and returns its waker.
    pub(crate) fn forget(&mut self, id: u64) -> Option<Waker> {
        self.others.as_mut()?.wakers.remove(&id)
    }

    pub(crate) fn wake(self) {
        let others = self.others.map(|others| others.wakers).unwrap_or_default();
        self.body.into_iter().chain(others.into_values()).for_each(wake);
    }
}
