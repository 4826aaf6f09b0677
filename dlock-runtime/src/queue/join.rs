//! How a caller gets a turn, or a place behind others.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use dlock_contract::LockKey;

use super::line::{Doing, Line, Place, Wish};
use super::table::LocalQueue;
use super::turn::Turn;
use super::waiting::Waiting;

/// The outcome of joining the queue.
#[derive(Debug)]
pub(crate) enum Joined {
    /// It is our turn.
    Turn(Turn),
    /// Behind others.
    Behind(Waiting),
    /// As many wait as are allowed to.
    Full,
    /// Others hold the lock or wait for it, and we do not want to wait.
    Taken,
    /// The others use the key for a lock of another mode.
    Mixed,
}

impl LocalQueue {
    pub(crate) fn join(self: &Arc<Self>, key: &LockKey, wish: Wish) -> Joined {
        let Wish { mode, waits, home, fair, .. } = wish;
        let turn = || Joined::Turn(Turn::new(self, key, None));
        let mut shard = self.shard(key);
        let line = match shard.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(Line { turn: Some(Doing::Asks), home, mode, ..Line::default() });
                return turn();
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        let is_only_left = matches!(line.turn, None | Some(Doing::Leaves)) && !line.is_shared();
        if !is_only_left && !line.mode.mixes_with(mode) {
            return Joined::Mixed;
        }
        match waits {
            // A neighbour that merely asks, or whose attempt failed just now, is no holder: nobody shall hear of contention
            // because of it.
            None if line.is_contended() => return Joined::Taken,
            Some(max) if line.waiters() >= max => return Joined::Full,
            _ => {}
        }
        let behind = if fair {
            line.places().any(|place| place.wish.fair)
        } else {
            line.carries(&wish) || line.first().is_some()
        };
        if line.turn.is_none() && !behind {
            // The callers of this process that hold the lock or stand in the store's line have left the turn to us.
            (line.turn, line.home, line.mode) = (Some(line.begins()), home, mode);
            return turn();
        }
        let answers = line.answers;
        let crowd = line.crowd();
        let ticket = crowd.next_ticket;
        crowd.next_ticket += 1;
        crowd.waiting.insert(ticket, Place { waker: None, wish });
        Joined::Behind(Waiting { queue: self.clone(), key: key.clone(), ticket: Some(ticket), answers })
    }
}
