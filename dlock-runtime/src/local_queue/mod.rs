//! Turns within this process: of all callers that want one key of one store, one asks; the others stand behind it.
//!
//! Keyed by the full key: Spring Integration striped such queues over 256 buckets, and foreign keys blocked each other
//! (its issue 11146). A turn is the right to ask; an exclusive hold keeps it until its release, unless the store hands
//! its locks on. There the hold leaves it to others: to one whose place in the store's line its release cannot take for
//! it, and to nobody as long as it can.

mod turn;

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::Claim;
use crate::background::{Home, is_forked};
use crate::baton::Baton;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::key::LockKey;
use crate::options::Kind;
use crate::sleepers::wake;
pub(crate) use turn::Turn;

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

/// Present only while somebody has the turn, or a hold that has left it to others.
#[derive(Debug, Default)]
struct Line {
    /// What the one with the turn does. If nobody has it, nobody waits, but for one for whom the release of a hold will
    /// ask, and those behind it.
    turn: Option<Doing>,
    /// The holds that have left the turn to others; two for the moment in which one passes to the next.
    holds: SmallVec<[Holding; 1]>,
    /// The thread of whoever has the turn.
    home: Option<Home>,
    /// How often the store has answered a caller of this process, by a grant or by saying that others hold the lock.
    answers: u64,
    /// Why it did not answer the last one that asked.
    failed: Option<Box<Error>>,
    /// What the one with the turn asks for.
    kind: Kind,
    /// Absent until somebody comes behind another: most locks are held without a neighbour, and there may be many.
    crowd: Option<Box<Crowd>>,
}

/// What the one with the turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It asks, and there is no answer yet: nobody knows whether anybody holds the lock.
    Asks,
    /// It waits too, since others hold the lock.
    Stands,
    /// It holds the lock.
    Holds,
    /// It is gone, and the turn is kept until what it may have left in the store is gone too.
    Leaves,
}

/// Who has to wait.
#[derive(Debug, Default)]
struct Crowd {
    next_ticket: u64,
    waiting: BTreeMap<u64, Place>,
    /// Those who have left the turn to others and stand in the store's line.
    standing: SmallVec<[Option<Home>; 1]>,
    /// Whose turn it is now, until its owner has noticed.
    called: Option<u64>,
    /// What comes to that one with it.
    baton: Option<Box<Baton>>,
    /// Those who do not wait for others, and whom the store's answer to somebody else has told enough. Until they notice.
    refused: BTreeMap<u64, Refusal>,
}

/// Why there is no turn for a caller that does not wait.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Somebody holds the lock.
    Taken,
    /// The store has not answered the caller before.
    Failed(Error),
}

/// What was known of the lock when a wait for the turn ran out.
#[derive(Debug)]
pub(crate) enum Known {
    /// Others have held it meanwhile.
    Contended,
    /// The store did not answer the caller before.
    Failed(Error),
    /// The caller before has asked all the time, without an answer.
    Nothing,
}

#[derive(Debug)]
struct Place {
    waker: Option<Waker>,
    wish: Wish,
}

/// A hold that has left the turn to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The thread of its caller.
    pub(crate) home: Option<Home>,
    /// For callers of which runtime its release will ask; of another one, which may be alive while this one stands
    /// still, nobody waits for it.
    pub(crate) carries: Option<Carries>,
}

/// The callers of one runtime, or those outside of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carries(pub(crate) Option<tokio::runtime::Id>);

/// What a caller wants of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: Kind,
    /// Behind how many others at most; `None`: it does not wait for them, but for the store's answer to one that asks.
    pub(crate) waits: Option<usize>,
    /// The caller's thread, if it is all that its runtime has.
    pub(crate) home: Option<Home>,
    /// The ttl of one to whom a hold may be passed on.
    pub(crate) member: Option<Duration>,
    /// Does it stand in the store's line from the beginning?
    pub(crate) fair: bool,
    /// What a neighbour's release may ask for, and until when it is waited for.
    pub(crate) carried: Option<(Arc<Claim>, BootInstant)>,
}

/// The first one who waits, for whom a release asks now. It has the turn, and does not know it yet.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) turn: Turn,
    pub(crate) ticket: u64,
    pub(crate) claim: Arc<Claim>,
    pub(crate) until: BootInstant,
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
    pub(crate) fn join(self: &Arc<Self>, key: &LockKey, wish: Wish) -> Joined {
        let Wish { kind, waits, home, fair, .. } = wish;
        let turn = || Joined::Turn(Turn::new(self, key, None));
        let mut shard = self.shard(key);
        let line = match shard.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(Line { turn: Some(Doing::Asks), home, kind, ..Line::default() });
                return turn();
            }
            Entry::Occupied(line) => line.into_mut(),
        };
        let is_only_left = matches!(line.turn, None | Some(Doing::Leaves)) && !line.is_shared();
        if !is_only_left && !line.kind.mixes_with(kind) {
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
            // Those of this process who hold it or stand in the store's line have left it to us.
            (line.turn, line.home, line.kind) = (Some(line.begins()), home, kind);
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

    /// To how many of those who are next a hold with this ttl may be passed on; it is not counted beyond `most`.
    pub(crate) fn members(&self, key: &LockKey, ttl: Duration, most: u32) -> u32 {
        let members = |line: &mut Line| {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            line.places().take(most).take_while(|place| place.wish.member == Some(ttl)).count()
        };
        self.with(key, members).and_then(|members| u32::try_from(members).ok()).unwrap_or(0)
    }

    /// For whom the release of this hold shall ask. `None` if there is nobody, or if somebody asks already; then it does
    /// so for nobody who comes later either: the answer to its release may be a long time coming.
    pub(crate) fn next(self: &Arc<Self>, key: &LockKey, hold: Holding) -> Option<Next> {
        let mut shard = self.shard(key);
        let line = shard.get_mut(key)?;
        let first = line.first().filter(|(_, first)| line.turn.is_none() && line.carries(&first.wish));
        let next = first.and_then(|(ticket, first)| Some((ticket, first.wish.home, first.wish.carried.clone()?)));
        remove_one(&mut line.holds, hold);
        line.holds.push(Holding { carries: None, ..hold });
        let (ticket, home, (claim, until)) = next?;
        (line.turn, line.home, line.kind) = (Some(Doing::Asks), home, claim.kind);
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

impl Line {
    fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }

    /// Those who wait for the turn, in their order.
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.crowd.iter().flat_map(|crowd| crowd.waiting.values())
    }

    fn first(&self) -> Option<(u64, &Place)> {
        let (ticket, place) = self.crowd.as_ref()?.waiting.first_key_value()?;
        Some((*ticket, place))
    }

    /// How many wait, the one with the turn among them, as far as it knows that it has to.
    fn waiters(&self) -> usize {
        self.crowd.as_ref().map_or(0, |crowd| crowd.len()) + usize::from(self.turn == Some(Doing::Stands))
    }

    /// Does anybody hold the lock, as far as this process knows?
    fn is_contended(&self) -> bool {
        matches!(self.turn, Some(Doing::Holds | Doing::Stands)) || self.is_shared()
    }

    /// What one does that gets the turn now.
    fn begins(&self) -> Doing {
        if self.is_shared() { Doing::Stands } else { Doing::Asks }
    }

    /// The store has answered the one with the turn, and so those who do not wait: somebody holds the lock. Gives whom to
    /// wake.
    fn answered(&mut self) -> Vec<Waker> {
        self.heard();
        self.refuse(|| Refusal::Taken)
    }

    /// The store has answered a caller of this process.
    fn heard(&mut self) {
        self.answers += 1;
        self.failed = None;
    }

    /// Takes those who do not wait out of the line; gives whom to wake.
    fn refuse(&mut self, why: impl Fn() -> Refusal) -> Vec<Waker> {
        let Some(crowd) = &mut self.crowd else { return Vec::new() };
        let refused: Vec<_> = crowd.waiting.extract_if(.., |_, place| place.wish.waits.is_none()).collect();
        crowd.refused.extend(refused.iter().map(|(ticket, _)| (*ticket, why())));
        refused.into_iter().filter_map(|(_, place)| place.waker).collect()
    }

    /// Has anybody left the turn to others?
    fn is_shared(&self) -> bool {
        !self.holds.is_empty() || self.crowd.as_ref().is_some_and(|crowd| !crowd.standing.is_empty())
    }

    /// Has nobody anything to do with it any more?
    fn is_forgotten(&self) -> bool {
        !self.is_shared() && self.crowd.as_ref().is_none_or(|crowd| crowd.refused.is_empty())
    }

    /// Will a release ask for this one?
    fn carries(&self, wish: &Wish) -> bool {
        let Some((claim, _)) = &wish.carried else { return false };
        self.holds.iter().any(|hold| hold.carries == Some(Carries(claim.origin)))
    }

    /// Takes the next one out of the line: the first, or, while a release will ask for that one, the first that must stand
    /// in the store's line from the beginning.
    fn take_next(&mut self) -> Option<(u64, Place)> {
        let (mut ticket, first) = self.first()?;
        if self.carries(&first.wish) {
            let fair = self.crowd.as_ref()?.waiting.iter().find(|(_, place)| place.wish.fair);
            ticket = *fair?.0;
        }
        self.crowd().waiting.remove_entry(&ticket)
    }
}

impl Crowd {
    fn len(&self) -> usize {
        self.waiting.len() + self.standing.len()
    }
}

/// Removes one of these.
fn remove_one<T: PartialEq>(all: &mut SmallVec<[T; 1]>, one: T) {
    if let Some(at) = all.iter().position(|other| *other == one) {
        all.swap_remove(at);
    }
}

/// Calls the next of the line after a change of it, or forgets the line if nobody has anything to do with it any more.
fn call_next(mut shard: MutexGuard<'_, HashMap<LockKey, Line>>, key: &LockKey, change: impl FnOnce(&mut Line)) {
    let Some(line) = shard.get_mut(key) else { return };
    change(line);
    let Some((ticket, Place { waker, wish })) = line.take_next() else {
        line.turn = None;
        line.home = None;
        if line.is_forgotten() {
            shard.remove(key);
        }
        return;
    };
    line.turn = Some(line.begins());
    line.crowd().called = Some(ticket);
    line.home = wish.home;
    line.kind = wish.kind;
    drop(shard);
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// A place in the line; ends with the turn. Dropping it gives up the place, or passes on a turn not yet noticed.
#[derive(Debug)]
pub(crate) struct Waiting {
    queue: Arc<LocalQueue>,
    key: LockKey,
    ticket: Option<u64>,
    /// [`Line::answers`] when it began.
    answers: u64,
}

impl Waiting {
    /// From now on the store's answer to somebody else is enough.
    pub(crate) fn wait_for_an_answer(&self) {
        let Some(ticket) = self.ticket else { return };
        self.queue.with(&self.key, |line| {
            if let Some(place) = line.crowd().waiting.get_mut(&ticket) {
                place.wish.waits = None;
            }
        });
    }

    /// What is known of the lock, for a caller whose wait is over.
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

#[cfg(test)]
mod tests;
