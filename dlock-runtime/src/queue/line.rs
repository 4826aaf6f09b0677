//! The callers of this process that want one key: the one with the turn, the holds that left it, and the waiters.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use dlock_contract::engine::{Home, wake};
use dlock_contract::{BootInstant, Claim, Error, LockKey, Mode};
use smallvec::SmallVec;

use super::handover::Baton;

/// Present only while somebody has the turn, or a hold that has left it to others.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The state of the caller with the turn. If no caller has it, the only waiters are one for which the release of a
    /// hold will ask, and those behind it.
    pub(super) turn: Option<Doing>,
    /// The holds that have left the turn to others; two for the moment in which one passes to the next.
    pub(super) holds: SmallVec<[Holding; 1]>,
    /// The thread of the caller with the turn.
    pub(super) home: Option<Home>,
    /// How often the store has answered a caller of this process, by a grant or by saying that others hold the lock.
    pub(super) answers: u64,
    /// The store's error, if it did not answer the last caller that asked.
    pub(super) failed: Option<Box<Error>>,
    /// The lock mode that the caller with the turn asks for.
    pub(super) mode: Mode,
    /// Absent until a caller waits behind another: most locks are held without a neighbour, and there may be many.
    pub(super) crowd: Option<Box<Crowd>>,
}

/// The state of the caller with the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It asks, and there is no answer yet: nobody knows whether anybody holds the lock.
    Asks,
    /// It waits too, since others hold the lock.
    Stands,
    /// It holds the lock.
    Holds,
    /// It is gone, and the turn is kept until what it may have left in the store is gone too.
    Leaves,
}

/// The callers that have to wait.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pub(super) next_ticket: u64,
    pub(super) waiting: BTreeMap<u64, Place>,
    /// The callers that have left the turn to others and stand in the store's line, by their threads.
    pub(super) standing: SmallVec<[Option<Home>; 1]>,
    /// The ticket of the waiter that has the turn now, until it has noticed.
    pub(super) called: Option<u64>,
    /// The hold that comes to this waiter with the turn.
    pub(super) baton: Option<Box<Baton>>,
    /// Callers that do not wait for others, and for which the store's answer to another caller was enough. Until they
    /// notice.
    pub(super) refused: BTreeMap<u64, Refusal>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) waker: Option<Waker>,
    pub(super) wish: Wish,
}

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

/// Why there is no turn for a caller that does not wait.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Somebody holds the lock.
    Taken,
    /// The store has not answered the caller before.
    Failed(Error),
}

/// A hold that has left the turn to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The thread of its caller.
    pub(crate) home: Option<Home>,
    /// The runtime for whose callers its release will ask. Callers of another runtime do not wait for it: theirs may
    /// run while this one stands still.
    pub(crate) carries: Option<Carries>,
}

/// The callers of one runtime, or those outside of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carries(pub(crate) Option<tokio::runtime::Id>);

impl Line {
    pub(super) fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }

    /// The callers that wait for the turn, in their order.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.crowd.iter().flat_map(|crowd| crowd.waiting.values())
    }

    pub(super) fn first(&self) -> Option<(u64, &Place)> {
        let (ticket, place) = self.crowd.as_ref()?.waiting.first_key_value()?;
        Some((*ticket, place))
    }

    /// The number of waiters. The caller with the turn is one of them once it knows that it has to wait.
    pub(super) fn waiters(&self) -> usize {
        self.crowd.as_ref().map_or(0, |crowd| crowd.len()) + usize::from(self.turn == Some(Doing::Stands))
    }

    /// Does anybody hold the lock, as far as this process knows?
    pub(super) fn is_contended(&self) -> bool {
        matches!(self.turn, Some(Doing::Holds | Doing::Stands)) || self.is_shared()
    }

    /// The state of a caller that gets the turn now.
    pub(super) fn begins(&self) -> Doing {
        if self.is_shared() { Doing::Stands } else { Doing::Asks }
    }

    /// The store has answered the caller with the turn: somebody holds the lock. This answers the callers that do not
    /// wait, too. Returns the wakers of these.
    pub(super) fn answered(&mut self) -> Vec<Waker> {
        self.heard();
        self.refuse(|| Refusal::Taken)
    }

    /// The store has answered a caller of this process.
    pub(super) fn heard(&mut self) {
        self.answers += 1;
        self.failed = None;
    }

    /// Takes the callers that do not wait out of the line, and returns their wakers.
    pub(super) fn refuse(&mut self, why: impl Fn() -> Refusal) -> Vec<Waker> {
        let Some(crowd) = &mut self.crowd else { return Vec::new() };
        let refused: Vec<_> = crowd.waiting.extract_if(.., |_, place| place.wish.waits.is_none()).collect();
        crowd.refused.extend(refused.iter().map(|(ticket, _)| (*ticket, why())));
        refused.into_iter().filter_map(|(_, place)| place.waker).collect()
    }

    /// Has any caller left the turn to others?
    pub(super) fn is_shared(&self) -> bool {
        !self.holds.is_empty() || self.crowd.as_ref().is_some_and(|crowd| !crowd.standing.is_empty())
    }

    /// Does no caller need this line any more?
    pub(super) fn is_forgotten(&self) -> bool {
        !self.is_shared() && self.crowd.as_ref().is_none_or(|crowd| crowd.refused.is_empty())
    }

    /// Will a release ask for this one?
    pub(super) fn carries(&self, wish: &Wish) -> bool {
        let Some((claim, _)) = &wish.carried else { return false };
        self.holds.iter().any(|hold| hold.carries == Some(Carries(claim.origin)))
    }

    /// Takes the next waiter out of the line: the first one. While a release will ask for the first one, it is the
    /// first that must stand in the store's line from the beginning.
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
pub(super) fn remove_one<T: PartialEq>(all: &mut SmallVec<[T; 1]>, one: T) {
    if let Some(at) = all.iter().position(|other| *other == one) {
        all.swap_remove(at);
    }
}

/// Changes the line and calls its next waiter, or forgets the line if no caller needs it any more.
pub(super) fn call_next(
    mut shard: MutexGuard<'_, HashMap<LockKey, Line>>,
    key: &LockKey,
    change: impl FnOnce(&mut Line),
) {
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
    line.mode = wish.mode;
    drop(shard);
    if let Some(waker) = waker {
        wake(waker);
    }
}
