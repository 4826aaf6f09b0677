//! The queue of one key in this process: the caller with the turn, the holds that left it to others, and the waiters.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use dlock_contract::engine::{SoleThread, wake};
use dlock_contract::{BootInstant, Claim, Error, LockKey, Mode};
use smallvec::SmallVec;

use super::handover::Handover;

/// The queue of one key. Present only while a caller has the turn, or a hold that has left it to others.
#[derive(Debug, Default)]
pub(super) struct KeyQueue {
    /// The state of the caller with the turn. If no caller has it, the only waiters are one for which the release of a
    /// hold will ask, and those behind it.
    pub(super) turn: Option<TurnState>,
    /// The holds that have left the turn to others; two for the moment in which one passes to the next.
    pub(super) holds: SmallVec<[LocalHold; 1]>,
    /// The thread of the caller with the turn.
    pub(super) sole_thread: Option<SoleThread>,
    /// How often the store has answered a caller of this process, by a grant or by saying that others hold the lock.
    pub(super) answers: u32,
    /// The store's error, if it did not answer the last caller that asked.
    pub(super) failed: Option<Box<Error>>,
    /// The lock mode that the caller with the turn asks for.
    pub(super) mode: Mode,
    /// Absent until a caller waits behind another: most locks are held without a neighbour, and there may be many.
    pub(super) waiters: Option<Box<Waiters>>,
}

/// The state of the caller with the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnState {
    /// The caller asks, and there is no answer yet. It is unknown whether the lock is held.
    Asks,
    /// It waits too, because others hold the lock.
    Waits,
    /// It holds the lock.
    Holds,
    /// It is gone. The turn is kept until its leftovers in the store are gone too.
    Leaves,
}

/// The callers that have to wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) next_ticket: u64,
    pub(super) waiting: BTreeMap<u64, Waiter>,
    /// The callers that have left the turn to others and wait in the store's queue, by their threads.
    pub(super) in_store_queue: SmallVec<[Option<SoleThread>; 1]>,
    /// The ticket of the waiter that has the turn now, until it has noticed.
    pub(super) called: Option<u64>,
    /// The handover that comes to this waiter with the turn.
    pub(super) handover: Option<Box<Handover>>,
    /// Callers that do not wait for others, and that were refused by the store's answer to another caller. Kept until
    /// they notice.
    pub(super) refused: BTreeMap<u64, TurnRefusal>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) request: TurnRequest,
}

/// A caller's request for the turn.
#[derive(Clone, Debug)]
pub(crate) struct TurnRequest {
    pub(crate) mode: Mode,
    /// The most callers that it waits behind. `None`: it does not wait for them, but for the store's answer to one that
    /// asks.
    pub(crate) waits: Option<usize>,
    /// The caller's thread, if its runtime has no other thread.
    pub(crate) sole_thread: Option<SoleThread>,
    /// The ttl of a caller to which a hold may be passed on; `None` for other callers.
    pub(crate) cohort_ttl: Option<Duration>,
    /// Whether the caller must wait in the store's queue from the beginning.
    pub(crate) fair: bool,
    /// Whether the caller keeps other locks of a store that finds callers which wait for each other. It waits in the store and
    /// behind no caller of this process, since the store sees only who waits there.
    pub(crate) holds_others: bool,
    /// The claim that a neighbour's release may ask for, and the end of its wait.
    pub(crate) claim_for_release: Option<(Arc<Claim>, BootInstant)>,
}

/// The reason why a caller that does not wait gets no turn.
#[derive(Debug)]
pub(crate) enum TurnRefusal {
    /// Another owner holds the lock.
    Taken,
    /// The store has not answered the caller before.
    Failed(Error),
}

/// A hold that has left the turn to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalHold {
    /// The caller's thread, if its runtime has no other thread.
    pub(crate) sole_thread: Option<SoleThread>,
    /// The runtime for whose callers its release will ask. Callers of another runtime do not wait for it: theirs may
    /// run while this one stands still.
    pub(crate) serves: Option<ServedRuntime>,
}

/// The callers of one runtime, or those outside of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServedRuntime(pub(crate) Option<dlock_contract::Origin>);

impl KeyQueue {
    pub(super) fn waiters(&mut self) -> &mut Waiters {
        self.waiters.get_or_insert_default()
    }

    /// The callers that wait for the turn, in their order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().flat_map(|waiters| waiters.waiting.values())
    }

    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        let (ticket, waiter) = self.waiters.as_ref()?.waiting.first_key_value()?;
        Some((*ticket, waiter))
    }

    /// The number of waiters. The caller with the turn is one of them once it knows that it has to wait.
    pub(super) fn waiter_count(&self) -> usize {
        self.waiters.as_ref().map_or(0, |waiters| waiters.len()) + usize::from(self.turn == Some(TurnState::Waits))
    }

    /// Whether the lock is held, as far as this process knows.
    pub(super) fn is_contended(&self) -> bool {
        matches!(self.turn, Some(TurnState::Holds | TurnState::Waits)) || self.is_shared()
    }

    /// The state of a caller that gets the turn now.
    pub(super) fn begins(&self) -> TurnState {
        if self.is_shared() { TurnState::Waits } else { TurnState::Asks }
    }

    /// The store has answered the caller with the turn: somebody holds the lock. This answers the callers that do not
    /// wait, too, and those that wait in the store. Returns the wakers of these.
    pub(super) fn answered(&mut self) -> Vec<Waker> {
        self.heard();
        let mut wakers = self.refuse(|| TurnRefusal::Taken);
        let waiting = self.waiters.iter_mut().flat_map(|waiters| waiters.waiting.values_mut());
        wakers.extend(waiting.filter(|waiter| waiter.request.holds_others).filter_map(|waiter| waiter.waker.take()));
        wakers
    }

    /// Sends a waiter to the store's queue, if it must wait there and the lock is held. Returns its request.
    pub(super) fn send_to_store_queue(&mut self, ticket: u64) -> Option<Waiter> {
        let is_contended = self.is_contended();
        let waiters = self.waiters();
        let waiter = waiters.waiting.get(&ticket)?;
        if !is_contended || !waiter.request.holds_others {
            return None;
        }
        waiters.in_store_queue.push(waiter.request.sole_thread);
        waiters.waiting.remove(&ticket)
    }

    /// The store has answered a caller of this process.
    pub(super) fn heard(&mut self) {
        self.answers = self.answers.wrapping_add(1);
        self.failed = None;
    }

    /// Refuses the callers that do not wait, and returns their wakers.
    pub(super) fn refuse(&mut self, why: impl Fn() -> TurnRefusal) -> Vec<Waker> {
        let Some(waiters) = &mut self.waiters else { return Vec::new() };
        let refused: Vec<_> = waiters.waiting.extract_if(.., |_, waiter| waiter.request.waits.is_none()).collect();
        waiters.refused.extend(refused.iter().map(|(ticket, _)| (*ticket, why())));
        refused.into_iter().filter_map(|(_, waiter)| waiter.waker).collect()
    }

    /// Whether a caller has left the turn to others.
    pub(super) fn is_shared(&self) -> bool {
        !self.holds.is_empty() || self.waiters.as_ref().is_some_and(|waiters| !waiters.in_store_queue.is_empty())
    }

    /// Whether no caller needs this queue any more.
    pub(super) fn is_forgotten(&self) -> bool {
        !self.is_shared() && self.waiters.as_ref().is_none_or(|waiters| waiters.refused.is_empty())
    }

    /// Whether a release will ask for this caller.
    pub(super) fn is_served(&self, request: &TurnRequest) -> bool {
        let Some((claim, _)) = &request.claim_for_release else { return false };
        self.holds.iter().any(|hold| hold.serves == Some(ServedRuntime(claim.origin)))
    }

    /// Takes the next waiter out of the queue: the first one. If a release will ask for the first one, it takes the
    /// first waiter that must wait in the store's queue from the beginning.
    fn take_next(&mut self) -> Option<(u64, Waiter)> {
        let (mut ticket, first) = self.first()?;
        if self.is_served(&first.request) {
            let fair = self.waiters.as_ref()?.waiting.iter().find(|(_, waiter)| waiter.request.fair);
            ticket = *fair?.0;
        }
        self.waiters().waiting.remove_entry(&ticket)
    }
}

impl Waiters {
    fn len(&self) -> usize {
        self.waiting.len() + self.in_store_queue.len()
    }
}

/// Removes one value that is equal to `one`.
pub(super) fn remove_one<T: PartialEq>(all: &mut SmallVec<[T; 1]>, one: T) {
    if let Some(index) = all.iter().position(|other| *other == one) {
        all.swap_remove(index);
    }
}

/// Changes the key's queue and calls its next waiter, or forgets the queue if no caller needs it any more.
pub(super) fn call_next(
    mut shard: MutexGuard<'_, HashMap<LockKey, KeyQueue>>,
    key: &LockKey,
    change: impl FnOnce(&mut KeyQueue),
) {
    let Some(key_queue) = shard.get_mut(key) else { return };
    change(key_queue);
    let Some((ticket, Waiter { waker, request })) = key_queue.take_next() else {
        key_queue.turn = None;
        key_queue.sole_thread = None;
        if key_queue.is_forgotten() {
            shard.remove(key);
        }
        return;
    };
    key_queue.turn = Some(key_queue.begins());
    key_queue.waiters().called = Some(ticket);
    key_queue.sole_thread = request.sole_thread;
    key_queue.mode = request.mode;
    drop(shard);
    if let Some(waker) = waker {
        wake(waker);
    }
}
