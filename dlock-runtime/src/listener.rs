//! Who hears of the loss of a hold: the one that runs the body, and others who want to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dlock_contract::Error;
use dlock_contract::engine::wake;

use crate::tenure::Tenure;

/// Somebody who wants to hear of the loss, beside the one that runs the body. Dropping it stops listening.
#[derive(Debug)]
pub(crate) struct Listener {
    tenure: Arc<Tenure>,
    /// Its number among the others; zero before it was first polled.
    id: AtomicU64,
}

impl Listener {
    pub(crate) const fn new(tenure: Arc<Tenure>) -> Self {
        Self { tenure, id: AtomicU64::new(0) }
    }

    /// Ready once the hold is lost.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Error> {
        self.tenure.poll_lost_with(|listeners| {
            let others = listeners.others.get_or_insert_default();
            if self.id.load(Ordering::Relaxed) == 0 {
                others.last += 1;
                self.id.store(others.last, Ordering::Relaxed);
            }
            others.wakers.insert(self.id.load(Ordering::Relaxed), cx.waker().clone())
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let gone = self.tenure.listeners().others.as_mut().and_then(|others| others.wakers.remove(self.id.get_mut()));
        // Outside of the lock: it may be the last that a foreign executor has of its task.
        drop(gone);
    }
}

/// Whom a loss wakes.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// Whoever runs the body: one, so it needs no number.
    body: Option<Waker>,
    /// Absent until there is one.
    others: Option<Box<Others>>,
}

#[derive(Debug, Default)]
struct Others {
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl Listeners {
    /// The one that runs the body listens; gives the waker whose place this one takes.
    pub(crate) fn listen(&mut self, waker: &Waker) -> Option<Waker> {
        match &self.body {
            Some(known) if known.will_wake(waker) => None,
            _ => self.body.replace(waker.clone()),
        }
    }

    pub(crate) fn wake(self) {
        let others = self.others.map(|others| others.wakers).unwrap_or_default();
        self.body.into_iter().chain(others.into_values()).for_each(wake);
    }
}
