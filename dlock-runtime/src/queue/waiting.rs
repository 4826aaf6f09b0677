//! A place among the waiters of one key, and the future of its turn.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};

use dlock_contract::engine::is_forked;
use dlock_contract::{Error, LockKey};

use super::line::{Line, Refusal, call_next};
use super::table::LocalQueue;
use super::turn::Turn;

/// A place in the line. Its future ends with the turn. Dropping it gives up the place, or passes on a turn not yet
/// noticed.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) queue: Arc<LocalQueue>,
    pub(super) key: LockKey,
    pub(super) ticket: Option<u64>,
    /// [`Line::answers`] when it began.
    pub(super) answers: u64,
}

/// The state of the lock, as far as it is known, when a wait for the turn ran out.
#[derive(Debug)]
pub(crate) enum Known {
    /// Others have held it meanwhile.
    Contended,
    /// The store did not answer the caller before.
    Failed(Error),
    /// The caller before has asked all the time, without an answer.
    Nothing,
}

impl Waiting {
    /// From now on the store's answer to another caller is enough.
    pub(crate) fn wait_for_an_answer(&self) {
        let Some(ticket) = self.ticket else { return };
        self.queue.with(&self.key, |line| {
            if let Some(place) = line.crowd().waiting.get_mut(&ticket) {
                place.wish.waits = None;
            }
        });
    }

    /// The state of the lock, as far as it is known, for a caller whose wait is over.
    pub(crate) fn known(&self) -> Known {
        let known = |line: &mut Line| match &line.failed {
            Some(error) => Known::Failed(error.again()),
            None if line.is_contended() || line.answers != self.answers => Known::Contended,
            None => Known::Nothing,
        };
        self.queue.with(&self.key, known).unwrap_or(Known::Contended)
    }
}

impl Future for Waiting {
    type Output = Result<Turn, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut shard = self.queue.shard(&self.key);
        let Some(crowd) = shard.get_mut(&self.key).map(Line::crowd) else { return Poll::Pending };
        let called = if crowd.called == Some(ticket) {
            crowd.called = None;
            Ok(crowd.baton.take())
        } else if let Some(refusal) = crowd.refused.remove(&ticket) {
            forget_if_empty(&mut shard, &self.key);
            Err(refusal)
        } else {
            let place = crowd.waiting.get_mut(&ticket);
            let old = place.and_then(|place| place.waker.replace(cx.waker().clone()));
            drop(shard);
            // Outside of the lock: it may be the last that a foreign executor has of its task.
            drop(old);
            return Poll::Pending;
        };
        drop(shard);
        self.ticket = None;
        Poll::Ready(called.map(|baton| Turn::new(&self.queue, &self.key, baton)))
    }
}

/// The last one has noticed its refusal.
fn forget_if_empty(shard: &mut MutexGuard<'_, HashMap<LockKey, Line>>, key: &LockKey) {
    if shard.get(key).is_some_and(|line| line.turn.is_none() && line.is_forgotten() && line.first().is_none()) {
        shard.remove(key);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // In a child after `fork` it is a copy of what the parent has.
        let Some(ticket) = self.ticket.filter(|_| !is_forked()) else { return };
        let mut shard = self.queue.shard(&self.key);
        let Some(line) = shard.get_mut(&self.key) else { return };
        let crowd = line.crowd();
        let old = crowd.waiting.remove(&ticket);
        let refusal = crowd.refused.remove(&ticket);
        let called = crowd.called == Some(ticket);
        let baton = if called { crowd.baton.take() } else { None };
        if line.turn.is_some() {
            drop(shard);
        } else {
            // It may have been the one for whom a release would ask, and the one behind it asks itself.
            call_next(shard, &self.key, |_| {});
        }
        drop((old, refusal));
        if called {
            drop(Turn::new(&self.queue, &self.key, baton));
        }
    }
}
