//! Turns within this process: of all callers that want one key of one store, one asks; the others stand behind it.
//!
//! Keyed by the full key: Spring Integration striped such queues over 256 buckets, and foreign keys blocked each other
//! (its issue 11146). A turn is the right to ask; an exclusive hold keeps it until its release.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::background::Home;
use crate::clock::wake;
use crate::key::LockKey;
use crate::options::Kind;

/// The turns of one store.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    /// Several tables, so that callers of different keys do not meet on one mutex.
    shards: [Mutex<HashMap<LockKey, Line>>; 16],
}

/// Present only while somebody has the turn.
#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiting: BTreeMap<u64, Place>,
    /// The thread of whoever has the turn.
    home: Option<Home>,
    /// Whose turn it is now, until its owner has noticed.
    called: Option<u64>,
    /// The turn is only kept until what its owner may have left in the store is gone.
    leaving: bool,
    /// What the one with the turn asks for.
    kind: Kind,
}

#[derive(Debug)]
struct Place {
    waker: Option<Waker>,
    home: Option<Home>,
    kind: Kind,
}

/// What joining the queue gives.
#[derive(Debug)]
pub(crate) enum Joined {
    /// Nobody was there: it is our turn.
    Turn(Turn),
    /// Behind others.
    Behind(Waiting),
    /// As many wait as are allowed to.
    Full,
    /// The others use the key for a lock of another kind.
    Mixed,
}

impl LocalQueue {
    pub(crate) fn join(self: &Arc<Self>, key: &LockKey, kind: Kind, max_waiters: usize, home: Option<Home>) -> Joined {
        let mut shard = self.shard(key);
        match shard.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(Line { home, kind, ..Line::default() });
                Joined::Turn(Turn { queue: self.clone(), key: key.clone() })
            }
            Entry::Occupied(line) if !line.get().leaving && !line.get().kind.mixes_with(kind) => Joined::Mixed,
            Entry::Occupied(line) if line.get().waiting.len() >= max_waiters => Joined::Full,
            Entry::Occupied(mut line) => {
                let line = line.get_mut();
                let ticket = line.next_ticket;
                line.next_ticket += 1;
                line.waiting.insert(ticket, Place { waker: None, home, kind });
                Joined::Behind(Waiting { queue: self.clone(), key: key.clone(), ticket: Some(ticket) })
            }
        }
    }

    /// Does anybody on this thread have the turn, or stand in the line? Parking it would keep them from going on.
    pub(crate) fn has(&self, key: &LockKey, home: Home) -> bool {
        let shard = self.shard(key);
        let Some(line) = shard.get(key) else { return false };
        line.home == Some(home) || line.waiting.values().any(|place| place.home == Some(home))
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashMap<LockKey, Line>> {
        // Only spreads callers over mutexes, so a sum will do: values differ at a key's end. The tables hash properly.
        let sum =
            key.as_str().bytes().rev().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.shards[sum % self.shards.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the next of the line, or forgets the line.
    fn pass_on(&self, key: &LockKey) {
        let mut shard = self.shard(key);
        let Some(line) = shard.get_mut(key) else { return };
        let Some((ticket, Place { waker, home, kind })) = line.waiting.pop_first() else {
            shard.remove(key);
            return;
        };
        line.called = Some(ticket);
        line.home = home;
        line.kind = kind;
        line.leaving = false;
        drop(shard);
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

/// The right to ask the store for this key; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    key: LockKey,
}

impl Turn {
    /// From now on it is kept only until our leftovers are gone.
    pub(crate) fn leave(&self) {
        if let Some(line) = self.queue.shard(&self.key).get_mut(&self.key) {
            line.leaving = true;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.pass_on(&self.key);
    }
}

/// A place in the line; ends with the turn. Dropping it gives up the place, or passes on a turn not yet noticed.
#[derive(Debug)]
pub(crate) struct Waiting {
    queue: Arc<LocalQueue>,
    key: LockKey,
    ticket: Option<u64>,
}

impl Waiting {
    /// Is nobody before us but one who has given up already, or who is gone by now?
    pub(crate) fn is_next_after_leftovers(&self) -> bool {
        let shard = self.queue.shard(&self.key);
        shard.get(&self.key).is_some_and(|line| line.called == self.ticket || line.leaving && line.waiting.len() == 1)
    }
}

impl Future for Waiting {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut shard = self.queue.shard(&self.key);
        let (called, old) = match shard.get_mut(&self.key) {
            Some(line) if line.called == Some(ticket) => {
                line.called = None;
                (true, None)
            }
            Some(line) => {
                let place = line.waiting.get_mut(&ticket);
                (false, place.and_then(|place| place.waker.replace(cx.waker().clone())))
            }
            None => (false, None),
        };
        drop(shard);
        // Outside of the lock: it may be the last that a foreign executor has of its task.
        drop(old);
        if !called {
            return Poll::Pending;
        }
        self.ticket = None;
        Poll::Ready(Turn { queue: self.queue.clone(), key: self.key.clone() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut shard = self.queue.shard(&self.key);
        let line = shard.get_mut(&self.key);
        let (called, old) =
            line.map_or((false, None), |line| (line.called == Some(ticket), line.waiting.remove(&ticket)));
        drop(shard);
        drop(old);
        if called {
            self.queue.pass_on(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use futures::FutureExt;

    fn key(text: &'static str) -> LockKey {
        LockKey::new("test", Key::text(text)).unwrap()
    }

    fn behind(queue: &Arc<LocalQueue>, key: &LockKey) -> Waiting {
        match queue.join(key, Kind::Exclusive, 10, None) {
            Joined::Behind(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn turn(queue: &Arc<LocalQueue>, key: &LockKey) -> Turn {
        match queue.join(key, Kind::Exclusive, 10, None) {
            Joined::Turn(turn) => turn,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whose_turn_it_is_already_is_behind_nobody() {
        let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
        let first = turn(&queue, &key);
        let second = behind(&queue, &key);
        assert!(!second.is_next_after_leftovers());
        first.leave();
        assert!(second.is_next_after_leftovers());
        drop(first);
        assert!(second.is_next_after_leftovers());
    }

    #[test]
    fn turns_come_in_order_and_leave_nothing() {
        let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
        let first = turn(&queue, &key);
        let (mut second, mut third) = (behind(&queue, &key), behind(&queue, &key));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        let now = (&mut second).now_or_never().unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(now);
        drop((&mut third).now_or_never().unwrap());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn other_keys_have_other_turns() {
        let queue = Arc::new(LocalQueue::default());
        let _one = turn(&queue, &key("a"));
        let _other = turn(&queue, &key("b"));
    }

    #[test]
    fn a_turn_given_to_a_dropped_waiter_passes_on() {
        let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
        let first = turn(&queue, &key);
        let (second, mut third) = (behind(&queue, &key), behind(&queue, &key));
        drop(first);
        drop(second);
        assert!((&mut third).now_or_never().is_some());
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_its_place() {
        let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
        let first = turn(&queue, &key);
        drop(behind(&queue, &key));
        drop(first);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_line_is_bounded() {
        let (queue, key) = (Arc::new(LocalQueue::default()), key("k"));
        let _turn = turn(&queue, &key);
        let _waiting = match queue.join(&key, Kind::Exclusive, 1, None) {
            Joined::Behind(waiting) => waiting,
            other => panic!("{other:?}"),
        };
        assert!(matches!(queue.join(&key, Kind::Exclusive, 1, None), Joined::Full));
    }
}
