//! Joins the queue: the caller gets the turn, or a place behind others.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use dlock_contract::LockKey;

use super::key_queue::{KeyQueue, TurnRequest, TurnState, Waiter};
use super::local_queue::LocalQueue;
use super::turn::Turn;
use super::waiting::Waiting;

/// The outcome of joining the queue.
#[derive(Debug)]
pub(crate) enum Joined {
    /// It is our turn.
    Turn(Turn),
    /// Behind others.
    Behind(Waiting),
    /// The queue has as many waiters as are allowed.
    Full,
    /// Others hold the lock or wait for it, and the caller does not wait.
    Taken,
    /// The others use the key for a lock of another mode.
    Mixed,
}

impl LocalQueue {
    pub(crate) fn join(self: &Arc<Self>, key: &LockKey, request: TurnRequest) -> Joined {
        let TurnRequest { mode, waits, sole_thread, fair, .. } = request;
        let turn = || Joined::Turn(Turn::new(self, key, None));
        let mut shard = self.shard(key);
        let key_queue = match shard.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(KeyQueue { turn: Some(TurnState::Asks), sole_thread, mode, ..KeyQueue::default() });
                return turn();
            }
            Entry::Occupied(key_queue) => key_queue.into_mut(),
        };
        let is_unused = matches!(key_queue.turn, None | Some(TurnState::Leaves)) && !key_queue.is_shared();
        if !is_unused && !key_queue.mode.mixes_with(mode) {
            return Joined::Mixed;
        }
        match waits {
            // A neighbour that only asks, or whose attempt failed just now, is no holder. It is no contention.
            None if key_queue.is_contended() => return Joined::Taken,
            Some(max) if key_queue.waiter_count() >= max => return Joined::Full,
            _ => {}
        }
        let behind = if fair {
            key_queue.waiting().any(|waiter| waiter.request.fair)
        } else {
            key_queue.is_served(&request) || key_queue.first().is_some()
        };
        if key_queue.turn.is_none() && !behind {
            // The callers of this process that hold the lock, or wait in the store's queue, have left the turn to this
            // one.
            (key_queue.turn, key_queue.sole_thread, key_queue.mode) = (Some(key_queue.begins()), sole_thread, mode);
            return turn();
        }
        let answers = key_queue.answers;
        let waiters = key_queue.waiters();
        let ticket = waiters.next_ticket;
        waiters.next_ticket += 1;
        waiters.waiting.insert(ticket, Waiter { waker: None, request });
        Joined::Behind(Waiting { queue: self.clone(), key: key.clone(), ticket: Some(ticket), answers })
    }
}
