//! Joins the queue: the caller gets the turn, or a place behind others.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use dlock_contract::{BootInstant, LockKey, Note};

use super::key_queue::{KeyQueue, TurnRequest, TurnState, Waiter};
use super::local_queue::{LocalQueue, Table};
use super::overdue::Overdue;
use super::turn::Turn;
use super::waiting::Waiting;
use crate::sync::planted;

/// The outcome of joining the queue.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The caller has the turn.
    Turn(Turn),
    /// Other callers are first.
    Behind(Waiting),
    /// The queue has as many waiters as are allowed.
    Full,
    /// Others hold the lock or wait for it, and the caller does not wait. The note is that of the caller with the turn.
    Taken(Option<Note>),
    /// The others use the key for a lock of another mode.
    Mixed,
    /// Callers before this one are not polled and have lost the turn. Undo what they have left, and join again.
    Overdue(Overdue),
}

impl LocalQueue {
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &LockKey,
        request: TurnRequest,
        now: impl FnOnce() -> BootInstant,
    ) -> Joined {
        let (mode, waits) = (request.claim.mode, request.max_ahead);
        let mut shard = self.shard(key);
        let Table { queues, last_turn } = &mut *shard;
        let mut new_turn = |key_queue: &mut KeyQueue, request: TurnRequest| {
            *last_turn += 1;
            key_queue.give_turn(*last_turn, request);
            Joined::Turn(Turn::new(self, key, *last_turn, None))
        };
        let key_queue = match queues.entry(key.clone()) {
            Entry::Vacant(free) => return new_turn(free.insert(KeyQueue::default()), request),
            Entry::Occupied(key_queue) => key_queue.into_mut(),
        };
        let now = now();
        if key_queue.note_overdue(now) {
            drop(shard);
            return Joined::Overdue(self.pass_over(key, now));
        }
        let is_unused = matches!(key_queue.state(), None | Some(TurnState::Leaves)) && !key_queue.is_left_to_others();
        if !is_unused && !key_queue.mode.mixes_with(mode) {
            return Joined::Mixed;
        }
        match waits {
            // A neighbour that only asks, or whose attempt failed just now, does not hold the lock. So there is no
            // contention.
            None if key_queue.is_contended() => {
                return Joined::Taken(key_queue.turn.as_ref().map(|owner| owner.claim.note.clone()));
            }
            Some(max) if key_queue.waiter_count() >= max => return Joined::Full,
            _ => {}
        }
        // A fair caller takes the turn at once if nobody has it.
        let behind = !request.is_fair() && (key_queue.is_served(&request) || key_queue.first().is_some());
        if key_queue.turn.is_none() && !behind {
            // The callers of this process that hold the lock, or wait in the store's queue, have left the turn to this
            // one.
            return new_turn(key_queue, request);
        }
        let key_queue = if planted("a place is taken after the look") {
            drop(shard);
            shard = self.shard(key);
            shard.queues.entry(key.clone()).or_default()
        } else {
            key_queue
        };
        let answers = key_queue.answers;
        let waiters = key_queue.waiters();
        let ticket = waiters.next_ticket;
        waiters.next_ticket += 1;
        waiters.waiting.insert(ticket, Waiter { waker: None, request });
        Joined::Behind(Waiting { queue: self.clone(), key: key.clone(), ticket: Some(ticket), answers })
    }
}
