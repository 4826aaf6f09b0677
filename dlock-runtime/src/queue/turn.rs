//! The turn: the right to ask the store for one key, and its way from one caller to the next.

use std::sync::Arc;
use std::task::Waker;

use dlock_contract::{BootInstant, Claim, Error, LockKey};
use dlock_store::engine::SoleThread;

use super::handover::Handover;
use super::key_queue::{
    KeyQueue, KnownState, LocalHold, ServedRuntime, TAKEN_UP_WITHIN, TurnRequest, TurnState, remove_one,
};
use super::local_queue::{LocalQueue, Table, call_next};
use crate::sync::{MutexGuard, planted, wake};

/// The right to ask the store for this key; dropping it passes it on.
///
/// An exclusive hold keeps the turn until its release, unless the store hands locks over. On such a store the release can
/// also request the lock for the first waiter of its runtime. If it cannot, that waiter gets the turn at once. If it can,
/// no waiter gets the turn before the release, except one that must join the store's queue itself (`fair`).
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    key: LockKey,
    /// See [`Caller::id`](super::key_queue::Caller::id).
    id: u64,
    state: State,
    /// The handover that came with the turn, until it is taken.
    handover: Option<Box<Handover>>,
}

/// The first waiter, for which a release asks now. This turn is meant for it; it does not know that yet.
#[derive(Debug)]
pub(crate) struct NextWaiter {
    pub(crate) turn: Turn,
    pub(crate) ticket: u64,
    pub(crate) claim: Arc<Claim>,
    pub(crate) wait_ends: BootInstant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No other caller of this process asks.
    Asks,
    /// Its owner waits in the store's queue. Another caller may ask.
    InStoreQueue,
    /// Its owner holds the lock. Another caller may ask.
    Holds(LocalHold),
    /// Another caller has the turn now.
    Gone,
}

impl Turn {
    pub(super) fn new(queue: &Arc<LocalQueue>, key: &LockKey, id: u64, handover: Option<Box<Handover>>) -> Self {
        Self { queue: queue.clone(), key: key.clone(), id, state: State::Asks, handover }
    }

    /// The right to ask of a caller that waits in the store's queue, and has its place among those that do.
    pub(super) fn in_store_queue(queue: &Arc<LocalQueue>, key: &LockKey, id: u64) -> Self {
        Self { queue: queue.clone(), key: key.clone(), id, state: State::InStoreQueue, handover: None }
    }

    /// Notes when its owner acts again at the latest, if it is polled: `None` for a request that was just sent, and
    /// otherwise the end of a sleep. False if the turn was lost, because its owner was not polled.
    pub(crate) fn note_next_act(&self, claim: &Arc<Claim>, sleeps_until: Option<BootInstant>) -> bool {
        let acts_by = sleeps_until.map(|until| until.after(TAKEN_UP_WITHIN));
        let note = |key_queue: &mut KeyQueue| {
            let caller = match self.state {
                State::Asks => key_queue.owner(self.id),
                State::InStoreQueue => key_queue.waiter_in_store(self.id),
                State::Holds(_) | State::Gone => None,
            };
            caller.map(|caller| (caller.claim, caller.acts_by) = (claim.clone(), acts_by)).is_some()
        };
        self.queue.with(&self.key, note).unwrap_or(false)
    }

    /// From now on the turn is kept only until its owner has abandoned everything that it left in the store.
    pub(crate) fn leave(&self) {
        if self.state == State::Asks {
            self.queue.with(&self.key, |key_queue| {
                if let Some(owner) = key_queue.owner(self.id) {
                    // The bound of the request does not count for its undo.
                    (owner.state, owner.sole_thread, owner.acts_by) = (TurnState::Leaves, None, None);
                }
            });
        }
    }

    /// The turn, to be kept until its owner's leftovers in the store are gone.
    pub(crate) fn left(self) -> Box<Self> {
        self.leave();
        Box::new(self)
    }

    /// The store has refused the turn's owner, because others hold the lock.
    pub(crate) fn note_contended(&self) {
        self.change_and_wake(|key_queue| {
            key_queue.set_state(TurnState::Waits);
            key_queue.note_held()
        });
    }

    /// The store has answered the turn's owner, and others may hold the lock beside it. The callers behind it have not
    /// waited for a silent store, and have to ask for themselves. False if the turn was lost.
    pub(crate) fn note_answer(&self) -> bool {
        match self.state {
            State::Asks => self.change_and_wake(|key_queue| {
                key_queue.note_answer();
                Vec::new()
            }),
            // Nobody may take its place, and abandon its claim, after this.
            State::InStoreQueue => {
                let leave = |key_queue: &mut KeyQueue| key_queue.leave_store_queue(self.id);
                self.queue.with(&self.key, leave).unwrap_or(false)
            }
            State::Holds(_) | State::Gone => true,
        }
    }

    /// The store did not answer the turn's owner. So the callers behind it do not wait for a holder, and those that do
    /// not wait for others get this error.
    pub(crate) fn note_failure(&self, error: &Error) {
        self.change_and_wake(|key_queue| {
            key_queue.failed = Some(Box::new(error.again()));
            key_queue.refuse(|| KnownState::Failed(error.again()))
        });
    }

    /// Changes the key's queue, and wakes the callers that the change concerns. False if the turn was lost, or does not ask
    /// any more; then nothing has changed.
    fn change_and_wake(&self, change: impl FnOnce(&mut KeyQueue) -> Vec<Waker>) -> bool {
        if self.state != State::Asks {
            return false;
        }
        let own = |key_queue: &mut KeyQueue| key_queue.owner(self.id).is_some().then(|| change(key_queue));
        let wakers = self.queue.with(&self.key, own).flatten();
        let is_own = wakers.is_some();
        // Outside of the lock: a waker may do anything.
        wakers.into_iter().flatten().for_each(wake);
        is_own
    }

    /// The table with the key's queue, if this turn asks and was not lost: only such a turn is that of the queue's owner.
    fn own_shard(&self) -> Option<MutexGuard<'_, Table>> {
        let mut shard = self.queue.shard(&self.key);
        let is_own = shard.queues.get_mut(&self.key).is_some_and(|key_queue| key_queue.owner(self.id).is_some());
        is_own.then_some(shard)
    }

    /// From now on the turn's owner waits in the store's queue, and the next caller may ask.
    pub(crate) fn join_store_queue(&mut self) {
        let Some(shard) = self.own_shard() else { return };
        call_next(shard, &self.key, |key_queue| {
            let owner = key_queue.turn.take();
            key_queue.waiters().in_store_queue.extend(owner);
        });
        self.state = State::InStoreQueue;
    }

    /// From now on the turn belongs to a hold. The next caller may ask, unless the release of the hold will ask for it.
    /// False if the turn was lost.
    pub(crate) fn begin_hold(&mut self, hold: LocalHold) -> bool {
        match self.state {
            State::Asks => {
                let Some(shard) = self.own_shard() else { return false };
                let mut wakers = Vec::new();
                call_next(shard, &self.key, |key_queue| {
                    key_queue.holds.push(hold);
                    wakers = key_queue.note_held();
                });
                wakers.into_iter().for_each(wake);
            }
            State::InStoreQueue => {
                let begin = |key_queue: &mut KeyQueue| {
                    let was_there = key_queue.leave_store_queue(self.id);
                    if was_there {
                        key_queue.holds.push(hold);
                    }
                    was_there
                };
                if !self.queue.with(&self.key, begin).unwrap_or(false) {
                    return false;
                }
            }
            State::Holds(_) | State::Gone => return true,
        }
        self.state = State::Holds(hold);
        true
    }

    /// From now on the turn belongs to a hold. No other caller may ask, unless one does already. False if the turn was
    /// lost.
    pub(crate) fn begin_sole_hold(&mut self, sole_thread: Option<SoleThread>) -> bool {
        match self.state {
            State::Asks => self.change_and_wake(|key_queue| {
                key_queue.set_state(TurnState::Holds);
                key_queue.note_held()
            }),
            _ => self.begin_hold(LocalHold { sole_thread, serves: None, is_releasing: false }),
        }
    }

    /// The release of the turn's hold is on its way. Returns the waiter for which it must ask.
    pub(crate) fn begin_release(&mut self) -> Option<NextWaiter> {
        match self.state {
            State::Holds(hold) => {
                let releasing = LocalHold { serves: None, is_releasing: true, ..hold };
                self.state = State::Holds(releasing);
                self.queue.begin_release(&self.key, hold, releasing)
            }
            _ => {
                self.note_release();
                None
            }
        }
    }

    /// The release of a hold that has kept the turn is on its way.
    pub(crate) fn note_release(&self) {
        self.change_and_wake(|key_queue| {
            key_queue.set_state(TurnState::Releases);
            Vec::new()
        });
    }

    /// Takes the handover that came with the turn.
    pub(crate) fn take_handover(&mut self) -> Option<Handover> {
        self.handover.take().map(|handover| *handover)
    }

    /// Passes the turn on with a hold, if the next waiter may have the hold. Otherwise returns the turn.
    pub(crate) fn pass(self, handover: Handover) -> Option<Self> {
        let ttl = handover.claim.ttl;
        self.pass_if(handover, |_, request| request.cohort_ttl == Some(ttl)).map(|(turn, _)| turn)
    }

    /// Passes the turn on to the waiter with this ticket. Returns both if that caller waits no more.
    pub(crate) fn pass_to(self, ticket: u64, handover: Handover) -> Option<(Self, Handover)> {
        self.pass_if(handover, |first, _| first == ticket)
    }

    fn pass_if(
        mut self,
        handover: Handover,
        may_take: impl FnOnce(u64, &TurnRequest) -> bool,
    ) -> Option<(Self, Handover)> {
        let Some(mut shard) = self.own_shard() else { return Some((self, handover)) };
        let key_queue = shard.queues.get_mut(&self.key);
        let first = key_queue.and_then(|key_queue| key_queue.waiters.as_mut()?.waiting.first_entry());
        let Some(mut first) = first.filter(|first| may_take(*first.key(), &first.get().request)) else {
            drop(shard);
            return Some((self, handover));
        };
        // This waiter gets the turn now, so no release may ask for it any more.
        first.get_mut().request.release_asks_until = None;
        let mut wakers = Vec::new();
        call_next(shard, &self.key, |key_queue| {
            key_queue.waiters().handover = Some(Box::new(handover));
            wakers = key_queue.note_held();
        });
        self.state = State::Gone;
        wakers.into_iter().for_each(wake);
        None
    }
}

impl LocalQueue {
    /// The waiter for which the release of this hold must ask. `None` if there is none, or if a caller asks already.
    /// Then the release asks for no later waiter either: the answer to it may take long.
    fn begin_release(self: &Arc<Self>, key: &LockKey, hold: LocalHold, releasing: LocalHold) -> Option<NextWaiter> {
        let mut shard = self.shard(key);
        let Table { queues, last_turn } = &mut *shard;
        let key_queue = queues.get_mut(key)?;
        // The release of this hold, not that of another one: it may have to keep the key, or belong to another runtime.
        let serves = |request: &TurnRequest| hold.serves == Some(ServedRuntime(request.claim.origin));
        let first = key_queue.first().filter(|(_, first)| key_queue.turn.is_none() && serves(&first.request));
        let next =
            first.and_then(|(ticket, first)| Some((ticket, first.request.clone(), first.request.release_asks_until?)));
        remove_one(&mut key_queue.holds, hold);
        key_queue.holds.push(releasing);
        let (ticket, request, wait_ends) = next?;
        let claim = request.claim.clone();
        *last_turn += 1;
        key_queue.give_turn(*last_turn, request);
        // The release asks under an owner of its own, which it undoes by itself. The waiter's claim has not left the process.
        key_queue.set_state(TurnState::Releases);
        Some(NextWaiter { turn: Turn::new(self, key, *last_turn, None), ticket, claim, wait_ends })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.state {
            State::Gone => {}
            State::Asks => match self.handover.take() {
                // Nobody took the hold. It is released first, because the next caller would only meet it.
                Some(handover) => handover.give_back(Self::new(&self.queue, &self.key, self.id, None).left()),
                None => {
                    if let Some(shard) = self.own_shard() {
                        call_next(shard, &self.key, |_| {});
                    }
                }
            },
            state @ (State::InStoreQueue | State::Holds(_)) => {
                let mut shard = self.queue.shard(&self.key);
                let Some(key_queue) = shard.queues.get_mut(&self.key) else { return };
                if let State::Holds(hold) = state {
                    remove_one(&mut key_queue.holds, hold);
                    key_queue.waiters.iter_mut().for_each(|waiters| waiters.released_by = None);
                } else {
                    key_queue.leave_store_queue(self.id);
                }
                // A waiter may have relied on this release to ask for it.
                if key_queue.turn.is_none() && !planted("a release calls nobody") {
                    call_next(shard, &self.key, |_| {});
                }
            }
        }
    }
}
