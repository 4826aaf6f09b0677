//! A place among the waiters of one key, and the future of its turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dlock_contract::LockKey;
use dlock_store::is_forked;

use super::key_queue::{KeyQueue, KnownState, TurnState, Waiter};
use super::local_queue::{LocalQueue, Table, call_next};
use super::turn::Turn;
use crate::sync::{MutexGuard, planted};

/// A place in a key's queue. Its future ends when the caller gets the turn, or has to wait in the store's queue. Dropping it gives up the place, or passes
/// on a turn that the caller has not noticed.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) queue: Arc<LocalQueue>,
    pub(super) key: LockKey,
    pub(super) ticket: Option<u64>,
    /// [`KeyQueue::answers`] when it began.
    pub(super) answers: u32,
}

impl Waiting {
    /// From now on the store's answer to another caller is enough.
    pub(crate) fn wait_for_an_answer(&self) {
        let Some(ticket) = self.ticket else { return };
        self.queue.with(&self.key, |key_queue| {
            if let Some(waiter) = key_queue.waiters().waiting.get_mut(&ticket) {
                waiter.request.max_ahead = None;
            }
        });
    }

    /// Whether the caller with the turn waits for others, which the store has told it.
    pub(crate) fn is_behind_a_wait(&self) -> bool {
        let waits = |key_queue: &mut KeyQueue| key_queue.state() == Some(TurnState::Waits);
        self.queue.with(&self.key, waits).unwrap_or(false)
    }

    /// The state of the lock, as far as it is known, for a caller whose wait is over.
    pub(crate) fn known(&self) -> KnownState {
        let known = |key_queue: &mut KeyQueue| {
            let before = || key_queue.turn.as_ref().map(|owner| owner.claim.note.clone());
            match &key_queue.failed {
                Some(error) => KnownState::Failed(error.again()),
                None if key_queue.is_contended() || key_queue.answers != self.answers => {
                    KnownState::Contended(before())
                }
                None => KnownState::Nothing(before()),
            }
        };
        self.queue.with(&self.key, known).unwrap_or(KnownState::Contended(None))
    }
}

impl Future for Waiting {
    type Output = Result<Turn, KnownState>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut shard = self.queue.shard(&self.key);
        let Table { queues, last_turn } = &mut *shard;
        let Some(key_queue) = queues.get_mut(&self.key) else { return Poll::Pending };
        if let Some(request) = key_queue.waiters().passed_over.remove(&ticket) {
            // It was not polled for long, and has its place again.
            key_queue.waiters().waiting.insert(ticket, Waiter { waker: Some(cx.waker().clone()), request });
            if key_queue.turn.is_none() {
                call_next(shard, &self.key, |_| {});
            }
            return Poll::Pending;
        }
        if key_queue.belongs_in_store_queue(ticket) {
            *last_turn += 1;
            let id = *last_turn;
            let waiter = key_queue.send_to_store_queue(ticket, id);
            drop(shard);
            drop(waiter);
            self.ticket = None;
            return Poll::Ready(Ok(Turn::in_store_queue(&self.queue, &self.key, id)));
        }
        let waiters = key_queue.waiters.get_or_insert_default();
        let is_called = waiters.called.take_if(|(called, _)| *called == ticket).is_some();
        let called = if let Some(owner) = key_queue.turn.as_mut().filter(|_| is_called) {
            owner.acts_by = None;
            Ok((owner.id, waiters.handover.take()))
        } else if let Some(refusal) = waiters.refused.remove(&ticket) {
            forget_if_empty(&mut shard, &self.key);
            Err(refusal)
        } else {
            let waiter = waiters.waiting.get_mut(&ticket);
            let old = waiter.and_then(|waiter| waiter.waker.replace(cx.waker().clone()));
            drop(shard);
            // Outside of the lock: it may be the last that a foreign executor has of its task.
            drop(old);
            return Poll::Pending;
        };
        drop(shard);
        self.ticket = None;
        Poll::Ready(called.map(|(id, handover)| Turn::new(&self.queue, &self.key, id, handover)))
    }
}

/// Forgets the key's queue once the last caller has noticed its refusal.
fn forget_if_empty(shard: &mut MutexGuard<'_, Table>, key: &LockKey) {
    if shard
        .queues
        .get(key)
        .is_some_and(|key_queue| key_queue.turn.is_none() && key_queue.is_forgotten() && key_queue.first().is_none())
    {
        shard.queues.remove(key);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // In a child after `fork` this is a copy of the parent's place.
        let Some(ticket) = self.ticket.filter(|_| !is_forked()) else { return };
        let mut shard = self.queue.shard(&self.key);
        let Some(key_queue) = shard.queues.get_mut(&self.key) else { return };
        let waiters = key_queue.waiters.get_or_insert_default();
        let old = (waiters.waiting.remove(&ticket), waiters.passed_over.remove(&ticket));
        let refusal = waiters.refused.remove(&ticket);
        let called = waiters.called.take_if(|(called, _)| *called == ticket);
        let mut turn = called.as_ref().and(key_queue.turn.as_ref()).map(|owner| (owner.id, waiters.handover.take()));
        if key_queue.turn.is_some() {
            drop(shard);
        } else {
            // A release may have been about to ask for this waiter. The waiter behind it may ask for itself.
            call_next(shard, &self.key, |_| {});
        }
        drop((old, refusal, called));
        if planted("a hold goes away with its waiter") {
            turn = turn.map(|(id, _)| (id, None));
        }
        if planted("a waiter that goes away takes the turn with it") {
            turn = None;
        }
        if let Some((id, handover)) = turn {
            drop(Turn::new(&self.queue, &self.key, id, handover));
        }
    }
}
