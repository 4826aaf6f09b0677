//! Turns within this process: of all callers that want one key of one store, one asks. The others wait behind it.
//!
//! Keyed by the full key: Spring Integration striped such queues over 256 buckets, and foreign keys blocked each other
//! (its issue 11146). A turn is the right to ask; an exclusive hold keeps it until its release, unless the store hands
//! its locks on. There the hold leaves the turn to a caller whose place in the store's line the hold's release cannot
//! take for it. As long as the release can take that place, nobody gets the turn.

mod line;
mod turn;
mod waiting;

use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::Home;
use dlock_contract::{BootInstant, Claim, LockKey, Mode};
use line::{Doing, Line, Place, remove_one};

pub(crate) use line::{Carries, Holding};
pub(crate) use turn::Turn;
pub(crate) use waiting::{Known, Refusal, Waiting};

/// The turns of one store.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    /// Several tables, so that callers of different keys do not meet on one mutex.
    shards: [Shard; 16],
}

/// Aligned, so that two of them never lie together in the processor's cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<LockKey, Line>>);

/// A caller's request to the queue.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    /// The most callers that it waits behind. `None`: it does not wait for them, but for the store's answer to one that
    /// asks.
    pub(crate) waits: Option<usize>,
    /// The caller's thread, if it is all that its runtime has.
    pub(crate) home: Option<Home>,
    /// The ttl of a caller that may get a hold passed on.
    pub(crate) member: Option<Duration>,
    /// Does it stand in the store's line from the beginning?
    pub(crate) fair: bool,
    /// The claim that a neighbour's release may ask for, and the deadline of its wait.
    pub(crate) carried: Option<(Arc<Claim>, BootInstant)>,
}

/// The first waiter, for which a release asks now. It has the turn, and does not know it yet.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) turn: Turn,
    pub(crate) ticket: u64,
    pub(crate) claim: Arc<Claim>,
    pub(crate) until: BootInstant,
}

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

    /// Does anybody on this thread have the turn, or stand in the line? Parking it would keep them from going on.
    pub(crate) fn has(&self, key: &LockKey, home: Home) -> bool {
        let shard = self.shard(key);
        let Some(line) = shard.get(key) else { return false };
        let waits = |place: &Place| place.wish.home == Some(home);
        let home = Some(home);
        line.home == home
            || line.holds.iter().any(|hold| hold.home == home)
            || line.crowd.as_ref().is_some_and(|crowd| crowd.standing.contains(&home))
            || line.places().any(waits)
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashMap<LockKey, Line>> {
        // Only spreads callers over mutexes, so a sum will do: values differ at a key's end. The tables hash properly.
        let sum =
            key.as_str().bytes().rev().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.shards[sum % self.shards.len()].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To how many of the next waiters a hold with this ttl may be passed on; it is not counted beyond `most`.
    pub(crate) fn members(&self, key: &LockKey, ttl: Duration, most: u32) -> u32 {
        let members = |line: &mut Line| {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            line.places().take(most).take_while(|place| place.wish.member == Some(ttl)).count()
        };
        self.with(key, members).and_then(|members| u32::try_from(members).ok()).unwrap_or(0)
    }

    /// The waiter for which the release of this hold must ask. `None` if there is none, or if a caller asks already.
    /// Then the release asks for no later waiter either: the answer to it may take long.
    pub(crate) fn next(self: &Arc<Self>, key: &LockKey, hold: Holding) -> Option<Next> {
        let mut shard = self.shard(key);
        let line = shard.get_mut(key)?;
        let first = line.first().filter(|(_, first)| line.turn.is_none() && line.carries(&first.wish));
        let next = first.and_then(|(ticket, first)| Some((ticket, first.wish.home, first.wish.carried.clone()?)));
        remove_one(&mut line.holds, hold);
        line.holds.push(Holding { carries: None, ..hold });
        let (ticket, home, (claim, until)) = next?;
        (line.turn, line.home, line.mode) = (Some(Doing::Asks), home, claim.mode);
        Some(Next { turn: Turn::new(self, key, None), ticket, claim, until })
    }

    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        self.shard(key).get_mut(key).map(change)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().unwrap().len()).sum()
    }
}

#[cfg(test)]
mod tests;
