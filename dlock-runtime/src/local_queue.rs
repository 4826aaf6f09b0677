//! Turns within this process: of all callers that want one key of one store, one asks; the others stand behind it.
//!
//! Keyed by the full key: Spring Integration striped such queues over 256 buckets, and foreign keys blocked each other
//! (its issue 11146). A turn is the right to ask; an exclusive hold keeps it until its release, unless the store hands
//! its locks on: there the next caller takes its place in the store's line while the hold goes on.

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

/// Present only while somebody has the turn, or a hold that has left it to others.
#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiting: BTreeMap<u64, Place>,
    /// Does anybody have the turn? If not, nobody waits either.
    turn: bool,
    /// How many holds have left the turn to others; two for the moment in which one passes to the next.
    holds: usize,
    /// Does the one with the turn wait too, since others hold the lock?
    stands: bool,
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
    /// It is our turn.
    Turn(Turn),
    /// Behind others.
    Behind(Waiting),
    /// As many wait as are allowed to.
    Full,
    /// Others hold the lock or wait for it, and we do not want to wait.
    Taken,
    /// The others use the key for a lock of another kind.
    Mixed,
}

impl LocalQueue {
    /// `waits`: for how many others at most; `None` if not at all.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &LockKey,
        kind: Kind,
        waits: Option<usize>,
        home: Option<Home>,
    ) -> Joined {
        let turn = || Joined::Turn(Turn { queue: self.clone(), key: key.clone(), held: false });
        let mut shard = self.shard(key);
        let line = match shard.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(Line { turn: true, home, kind, ..Line::default() });
                return turn();
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        if !line.leaving && !line.kind.mixes_with(kind) {
            return Joined::Mixed;
        }
        match waits {
            // An attempt that failed just now is no holder: nobody shall hear of contention because of it.
            None if line.holds > 0 || !line.leaving || !line.waiting.is_empty() => return Joined::Taken,
            Some(max) if line.waiting.len() + usize::from(line.stands) >= max => return Joined::Full,
            _ => {}
        }
        if !line.turn {
            // For the holders of this process.
            (line.turn, line.stands, line.home, line.kind) = (true, true, home, kind);
            return turn();
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.waiting.insert(ticket, Place { waker: None, home, kind });
        Joined::Behind(Waiting { queue: self.clone(), key: key.clone(), ticket: Some(ticket) })
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
        let shard = self.shard(key);
        call_next(shard, key, |_| {});
    }

    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        self.shard(key).get_mut(key).map(change)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

/// Calls the next of the line after a change of it, or forgets the line if nobody has anything to do with it any more.
fn call_next(mut shard: MutexGuard<'_, HashMap<LockKey, Line>>, key: &LockKey, change: impl FnOnce(&mut Line)) {
    let Some(line) = shard.get_mut(key) else { return };
    change(line);
    line.leaving = false;
    line.stands = line.holds > 0;
    let Some((ticket, Place { waker, home, kind })) = line.waiting.pop_first() else {
        line.turn = false;
        line.stands = false;
        line.home = None;
        if line.holds == 0 {
            shard.remove(key);
        }
        return;
    };
    line.called = Some(ticket);
    line.home = home;
    line.kind = kind;
    drop(shard);
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// The right to ask the store for this key; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    key: LockKey,
    /// It has become a hold, and the right is another's.
    held: bool,
}

impl Turn {
    /// From now on it is kept only until our leftovers are gone.
    pub(crate) fn leave(&self) {
        self.queue.with(&self.key, |line| line.leaving = true);
    }

    /// Whoever has it waits, since others hold the lock.
    pub(crate) fn stands(&self) {
        self.queue.with(&self.key, |line| line.stands = true);
    }

    /// From now on it stands for a hold, and the next caller may ask.
    pub(crate) fn hold(&mut self) {
        if !std::mem::replace(&mut self.held, true) {
            call_next(self.queue.shard(&self.key), &self.key, |line| line.holds += 1);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.held {
            return self.queue.pass_on(&self.key);
        }
        let mut shard = self.queue.shard(&self.key);
        let Some(line) = shard.get_mut(&self.key) else { return };
        line.holds = line.holds.saturating_sub(1);
        if line.holds == 0 && !line.turn {
            shard.remove(&self.key);
        }
    }
}

/// A place in the line; ends with the turn. Dropping it gives up the place, or passes on a turn not yet noticed.
#[derive(Debug)]
pub(crate) struct Waiting {
    queue: Arc<LocalQueue>,
    key: LockKey,
    ticket: Option<u64>,
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
        Poll::Ready(Turn { queue: self.queue.clone(), key: self.key.clone(), held: false })
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
        match queue.join(key, Kind::Exclusive, Some(10), None) {
            Joined::Behind(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn turn(queue: &Arc<LocalQueue>, key: &LockKey) -> Turn {
        match queue.join(key, Kind::Exclusive, Some(10), None) {
            Joined::Turn(turn) => turn,
            other => panic!("{other:?}"),
        }
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
        let _waiting = match queue.join(&key, Kind::Exclusive, Some(1), None) {
            Joined::Behind(waiting) => waiting,
            other => panic!("{other:?}"),
        };
        assert!(matches!(queue.join(&key, Kind::Exclusive, Some(1), None), Joined::Full));
    }
}
