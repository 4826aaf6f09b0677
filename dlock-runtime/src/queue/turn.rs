//! The turn: the right to ask the store for one key, and its way from one caller to the next.

use std::sync::Arc;
use std::task::Waker;

use dlock_contract::engine::{SoleThread, wake};
use dlock_contract::{BootInstant, Claim, Error, LockKey};

use super::handover::Handover;
use super::key_queue::{KeyQueue, LocalHold, TurnRefusal, TurnRequest, TurnState, call_next, remove_one};
use super::local_queue::LocalQueue;

/// The right to ask the store for this key; dropping it passes it on.
///
/// An exclusive hold keeps its turn until its release, unless the store hands its locks on. There, the release can ask
/// for most waiters, and the hold leaves the turn only to a waiter for which the release cannot ask. As long as the
/// release can ask for the first waiter, nobody gets the turn.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    key: LockKey,
    state: State,
    /// The handover that came with the turn, until it is taken.
    handover: Option<Box<Handover>>,
}

/// The first waiter, for which a release asks now. This turn is meant for it; it does not know that yet.
#[derive(Debug)]
pub(crate) struct Next {
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
    InStoreQueue(Option<SoleThread>),
    /// Its owner holds the lock. Another caller may ask.
    Holds(LocalHold),
    /// Another caller has the turn now.
    Gone,
}

impl Turn {
    pub(super) fn new(queue: &Arc<LocalQueue>, key: &LockKey, handover: Option<Box<Handover>>) -> Self {
        Self { queue: queue.clone(), key: key.clone(), state: State::Asks, handover }
    }

    /// The right to ask of a caller that waits in the store's queue, and has its place among those that do.
    pub(super) fn in_store_queue(queue: &Arc<LocalQueue>, key: &LockKey, sole_thread: Option<SoleThread>) -> Self {
        let state = State::InStoreQueue(sole_thread);
        Self { queue: queue.clone(), key: key.clone(), state, handover: None }
    }

    /// From now on the turn is kept only until its owner has abandoned everything that it left in the store.
    pub(crate) fn leave(&self) {
        if self.state == State::Asks {
            self.queue
                .with(&self.key, |key_queue| (key_queue.turn, key_queue.sole_thread) = (Some(TurnState::Leaves), None));
        }
    }

    /// The turn, to be kept until its owner's leftovers in the store are gone.
    pub(crate) fn left(self) -> Box<Self> {
        self.leave();
        Box::new(self)
    }

    /// The store has told the turn's owner that others hold the lock.
    pub(crate) fn contended(&self) {
        if self.state == State::Asks {
            self.change_and_wake(|key_queue| {
                key_queue.turn = Some(TurnState::Waits);
                key_queue.answered()
            });
        }
    }

    /// The store has answered the turn's owner, and others may hold the lock beside it. The callers behind it have not
    /// waited for a silent store, and have to ask for themselves.
    pub(crate) fn answered(&self) {
        if self.state == State::Asks {
            self.change_and_wake(|key_queue| {
                key_queue.heard();
                Vec::new()
            });
        }
    }

    /// The store did not answer the turn's owner. So the callers behind it do not wait for a holder, and those that do
    /// not wait for others get this error.
    pub(crate) fn failed(&self, error: &Error) {
        if self.state == State::Asks {
            self.change_and_wake(|key_queue| {
                key_queue.failed = Some(Box::new(error.again()));
                key_queue.refuse(|| TurnRefusal::Failed(error.again()))
            });
        }
    }

    /// Changes the key's queue, and wakes the callers that the change concerns.
    fn change_and_wake(&self, change: impl FnOnce(&mut KeyQueue) -> Vec<Waker>) {
        // Outside of the lock: a waker may do anything.
        self.queue.with(&self.key, change).into_iter().flatten().for_each(wake);
    }

    /// From now on the turn's owner waits in the store's queue, and the next caller may ask.
    pub(crate) fn join_store_queue(&mut self, sole_thread: Option<SoleThread>) {
        if self.state == State::Asks {
            self.state = State::InStoreQueue(sole_thread);
            call_next(self.queue.shard(&self.key), &self.key, |key_queue| {
                key_queue.waiters().in_store_queue.push(sole_thread)
            });
        }
    }

    /// From now on the turn belongs to a hold. The next caller may ask, unless the release of the hold will ask for it.
    pub(crate) fn begin_hold(&mut self, hold: LocalHold) {
        match std::mem::replace(&mut self.state, State::Holds(hold)) {
            State::Asks => {
                let mut wakers = Vec::new();
                call_next(self.queue.shard(&self.key), &self.key, |key_queue| {
                    key_queue.holds.push(hold);
                    wakers = key_queue.answered();
                });
                wakers.into_iter().for_each(wake);
            }
            State::InStoreQueue(thread) => {
                self.queue.with(&self.key, |key_queue| {
                    remove_one(&mut key_queue.waiters().in_store_queue, thread);
                    key_queue.holds.push(hold);
                });
            }
            before => self.state = before,
        }
    }

    /// From now on the turn belongs to a hold. No other caller may ask, unless one does already.
    pub(crate) fn begin_sole_hold(&mut self, sole_thread: Option<SoleThread>) {
        match self.state {
            State::Asks => self.change_and_wake(|key_queue| {
                key_queue.turn = Some(TurnState::Holds);
                key_queue.answered()
            }),
            _ => self.begin_hold(LocalHold { sole_thread, serves: None }),
        }
    }

    /// The waiter for which the release of this turn's hold must ask.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let State::Holds(hold) = self.state else { return None };
        self.state = State::Holds(LocalHold { serves: None, ..hold });
        self.queue.next(&self.key, hold)
    }

    /// Takes the handover that came with the turn.
    pub(crate) fn take(&mut self) -> Option<Handover> {
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
        let mut shard = self.queue.shard(&self.key);
        let key_queue = shard.get_mut(&self.key).filter(|_| self.state == State::Asks);
        let first = key_queue.and_then(|key_queue| key_queue.waiters.as_mut()?.waiting.first_entry());
        let Some(mut first) = first.filter(|first| may_take(*first.key(), &first.get().request)) else {
            drop(shard);
            return Some((self, handover));
        };
        // This waiter gets the turn now, so no release may ask for it any more.
        first.get_mut().request.claim_for_release = None;
        self.state = State::Gone;
        let mut wakers = Vec::new();
        call_next(shard, &self.key, |key_queue| {
            key_queue.waiters().handover = Some(Box::new(handover));
            wakers = key_queue.answered();
        });
        wakers.into_iter().for_each(wake);
        None
    }
}

impl LocalQueue {
    /// The waiter for which the release of this hold must ask. `None` if there is none, or if a caller asks already.
    /// Then the release asks for no later waiter either: the answer to it may take long.
    fn next(self: &Arc<Self>, key: &LockKey, hold: LocalHold) -> Option<Next> {
        let mut shard = self.shard(key);
        let key_queue = shard.get_mut(key)?;
        let first =
            key_queue.first().filter(|(_, first)| key_queue.turn.is_none() && key_queue.is_served(&first.request));
        let next = first.and_then(|(ticket, first)| {
            Some((ticket, first.request.sole_thread, first.request.claim_for_release.clone()?))
        });
        remove_one(&mut key_queue.holds, hold);
        key_queue.holds.push(LocalHold { serves: None, ..hold });
        let (ticket, sole_thread, (claim, wait_ends)) = next?;
        (key_queue.turn, key_queue.sole_thread, key_queue.mode) = (Some(TurnState::Asks), sole_thread, claim.mode);
        Some(Next { turn: Turn::new(self, key, None), ticket, claim, wait_ends })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.state {
            State::Gone => {}
            State::Asks => match self.handover.take() {
                // Nobody took the hold. It is released first, because the next caller would only meet it.
                Some(handover) => handover.give_back(Self::new(&self.queue, &self.key, None).left()),
                None => call_next(self.queue.shard(&self.key), &self.key, |_| {}),
            },
            State::InStoreQueue(_) | State::Holds(_) => {
                let mut shard = self.queue.shard(&self.key);
                let Some(key_queue) = shard.get_mut(&self.key) else { return };
                match self.state {
                    State::InStoreQueue(sole_thread) => {
                        remove_one(&mut key_queue.waiters().in_store_queue, sole_thread)
                    }
                    State::Holds(hold) => remove_one(&mut key_queue.holds, hold),
                    State::Asks | State::Gone => {}
                }
                // A waiter may have relied on this release to ask for it.
                if key_queue.turn.is_none() {
                    call_next(shard, &self.key, |_| {});
                }
            }
        }
    }
}
