//! A turn: what its owner may do with it, and where it goes from there.

use std::sync::Arc;

use super::{LocalQueue, call_next, remove_one};
use crate::background::Home;
use crate::cohort::Baton;
use crate::key::LockKey;

/// The right to ask the store for this key; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    key: LockKey,
    state: State,
    /// The hold that came with it, until it is taken.
    baton: Option<Box<Baton>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody else of this process asks.
    Asks,
    /// It stands in the store's line, and the right is another's.
    Stands(Option<Home>),
    /// It has become a hold, and the right is another's.
    Holds(Option<Home>),
    /// Another one has it now.
    Gone,
}

impl Turn {
    pub(super) fn new(queue: &Arc<LocalQueue>, key: &LockKey, baton: Option<Box<Baton>>) -> Self {
        Self { queue: queue.clone(), key: key.clone(), state: State::Asks, baton }
    }

    /// From now on it is kept only until our leftovers are gone.
    pub(crate) fn leave(&self) {
        if self.state == State::Asks {
            self.queue.with(&self.key, |line| line.leaving = true);
        }
    }

    /// Whoever has it waits, since others hold the lock.
    pub(crate) fn stands(&self) {
        self.queue.with(&self.key, |line| line.stands = true);
    }

    /// From now on whoever has it stands in the store's line, and the next caller may ask.
    pub(crate) fn stand(&mut self, home: Option<Home>) {
        if self.state == State::Asks {
            self.state = State::Stands(home);
            call_next(self.queue.shard(&self.key), &self.key, |line| line.standing.push(home));
        }
    }

    /// From now on it stands for a hold, and the next caller may ask.
    pub(crate) fn hold(&mut self, home: Option<Home>) {
        match std::mem::replace(&mut self.state, State::Holds(home)) {
            State::Asks => call_next(self.queue.shard(&self.key), &self.key, |line| line.holds.push(home)),
            State::Stands(stood) => {
                self.queue.with(&self.key, |line| {
                    remove_one(&mut line.standing, stood);
                    line.holds.push(home);
                });
            }
            before => self.state = before,
        }
    }

    /// From now on it stands for a hold, and nobody else may ask, unless others do already.
    pub(crate) fn keep(&mut self, home: Option<Home>) {
        match self.state {
            State::Asks => drop(self.queue.with(&self.key, |line| line.stands = false)),
            _ => self.hold(home),
        }
    }

    /// The hold that was passed on to us.
    pub(crate) fn take(&mut self) -> Option<Baton> {
        self.baton.take().map(|baton| *baton)
    }

    /// Passes the turn on, with a hold, if the next one may have it; else gives the hold back.
    pub(crate) fn pass(mut self, baton: Baton) -> Option<Self> {
        let ttl = baton.hold.claim.ttl;
        let shard = self.queue.shard(&self.key);
        let next = shard.get(&self.key).and_then(|line| line.waiting.values().next());
        if self.state != State::Asks || next.is_none_or(|next| next.wish.member != Some(ttl)) {
            drop(shard);
            return Some(self);
        }
        self.state = State::Gone;
        call_next(shard, &self.key, |line| line.baton = Some(Box::new(baton)));
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.state {
            State::Gone => {}
            State::Asks => match self.baton.take() {
                // Nobody took the hold: it goes back first, for the next one would only meet it.
                Some(baton) => baton.give_back(Self::new(&self.queue, &self.key, None)),
                None => call_next(self.queue.shard(&self.key), &self.key, |_| {}),
            },
            State::Stands(_) | State::Holds(_) => {
                let mut shard = self.queue.shard(&self.key);
                let Some(line) = shard.get_mut(&self.key) else { return };
                match self.state {
                    State::Stands(home) => remove_one(&mut line.standing, home),
                    State::Holds(home) => remove_one(&mut line.holds, home),
                    State::Asks | State::Gone => {}
                }
                if !line.is_shared() && !line.turn {
                    shard.remove(&self.key);
                }
            }
        }
    }
}
