//! Callers that are not polled: their turn goes to the next caller.
//!
//! A call that waits may stop to be polled: a `select!` loop whose handler calls the same function, or a future that is
//! kept or leaked. Its callers behind it would wait for ever, and not because of the lock. So each caller behind looks
//! whether the caller before it has acted when it had to: as long as it is polled, it does, because all that it waits
//! for has a bound. One that acts later has lost its turn, finds that out, and joins again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, LockKey};

use super::handover::Handover;
use super::key_queue::{KeyQueue, TAKEN_UP_WITHIN, TurnState, Won};
use super::local_queue::{LocalQueue, Table, call_next};
use super::turn::Turn;
use super::waiting::Waiting;

/// How often the first waiters look at the caller with the turn.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that one request may take, whatever the ttl.
pub(crate) const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// The longest time that a release may take. Its caller waits for it.
pub(crate) const LONGEST_RELEASE: Duration = Duration::from_secs(2);

/// The leftovers of callers that have lost their turn.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// The claims that must be abandoned, each with the turn that waits for it.
    pub(crate) claims: Vec<(Arc<Claim>, Option<Turn>)>,
    /// A handover that was not taken, with the turn that waits until it is undone.
    pub(crate) handover: Option<(Box<Handover>, Turn)>,
    /// The locks of calls for several keys, which are not waited for.
    pub(crate) won: Vec<Weak<dyn Won>>,
}

impl KeyQueue {
    /// Notes when each caller must act at the latest, if nobody has before. True if one has not acted by then.
    pub(super) fn note_overdue(&mut self, now: BootInstant) -> bool {
        let is_over = |acts_by: &mut Option<BootInstant>, bound: Duration| {
            *acts_by.get_or_insert(now.after(bound).after(TAKEN_UP_WITHIN)) <= now
        };
        let is_called = self.waiters.as_ref().is_some_and(|waiters| waiters.called.is_some());
        let owner = self.turn.as_mut().is_some_and(|owner| match owner.state {
            TurnState::Holds | TurnState::Leaves => false,
            TurnState::Asks | TurnState::Waits if is_called => is_over(&mut owner.acts_by, Duration::ZERO),
            TurnState::Asks | TurnState::Waits => is_over(&mut owner.acts_by, LONGEST_REQUEST),
            TurnState::Releases => is_over(&mut owner.acts_by, LONGEST_RELEASE),
        });
        let is_releasing = self.holds.iter().any(|hold| hold.is_releasing);
        let release = is_releasing && is_over(&mut self.waiters().released_by, LONGEST_RELEASE);
        let waiters = self.waiters.iter_mut().flat_map(|waiters| &mut waiters.in_store_queue);
        // Each of them, so that each is noted.
        let in_store_queue = waiters.filter_map(|waiter| is_over(&mut waiter.acts_by, LONGEST_REQUEST).then_some(()));
        in_store_queue.count() > 0 || owner || release
    }
}

impl LocalQueue {
    /// The keys for which a caller asks the store, or waits behind another one, in their order. A release or a hold that is passed
    /// on may give such a waiter the turn.
    pub(crate) fn wanted_keys(&self) -> Vec<LockKey> {
        let is_wanted = |key_queue: &KeyQueue| {
            matches!(key_queue.state(), Some(TurnState::Asks | TurnState::Waits))
                || key_queue.in_store_queue().next().is_some()
                || key_queue.waiting().next().is_some()
        };
        let wanted = |table: &Table| -> Vec<_> {
            table.queues.iter().filter(|(_, key_queue)| is_wanted(key_queue)).map(|(key, _)| key.clone()).collect()
        };
        let mut keys: Vec<_> = self.tables().flat_map(|table| wanted(&table)).collect();
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        keys
    }

    /// Takes the turn from callers that are not polled. The next caller gets it when their leftovers are undone.
    pub(crate) fn pass_over(self: &Arc<Self>, key: &LockKey, now: BootInstant) -> Overdue {
        let mut overdue = Overdue::default();
        let mut shard = self.shard(key);
        let Table { queues, last_turn } = &mut *shard;
        let Some(key_queue) = queues.get_mut(key) else { return overdue };
        if !key_queue.note_overdue(now) {
            return overdue;
        }
        let is_over = |acts_by: Option<BootInstant>| acts_by.is_some_and(|acts_by| acts_by <= now);
        if let Some(waiters) = &mut key_queue.waiters {
            if is_over(waiters.released_by) {
                // The store knows whether that release has arrived.
                waiters.released_by = None;
                key_queue.holds.retain(|hold| !hold.is_releasing);
            }
            let left = waiters.in_store_queue.iter().filter(|waiter| is_over(waiter.acts_by));
            overdue.claims.extend(left.clone().map(|waiter| (waiter.claim.clone(), None)));
            overdue.won.extend(left.filter_map(|waiter| waiter.won.clone()));
            waiters.in_store_queue.retain(|waiter| !is_over(waiter.acts_by));
        }
        let Some(owner) = key_queue.turn.as_mut().filter(|owner| is_over(owner.acts_by)) else { return overdue };
        if owner.state == TurnState::Releases {
            call_next(shard, key, |_| {});
            return overdue;
        }
        *last_turn += 1;
        (owner.id, owner.state, owner.sole_thread, owner.acts_by) = (*last_turn, TurnState::Leaves, None, None);
        let (turn, claim) = (Turn::new(self, key, owner.id, None), owner.claim.clone());
        overdue.won.extend(owner.won.take());
        let waiters = key_queue.waiters();
        let Some((ticket, request)) = waiters.called.take() else {
            overdue.claims.push((claim, Some(turn)));
            return overdue;
        };
        waiters.passed_over.insert(ticket, request);
        let handover = waiters.handover.take();
        drop(shard);
        // Without a handover nothing of it is in the store, and the next caller gets the turn at once.
        overdue.handover = handover.map(|handover| (handover, turn));
        overdue
    }
}

impl Waiting {
    /// When to look whether the caller with the turn is polled. The waiters at the front look often, and the others the less
    /// the more there are before them: very many waiters must not keep a processor busy.
    pub(crate) fn looks_after(&self) -> Duration {
        let first = |key_queue: &mut KeyQueue| key_queue.first().map(|(ticket, _)| ticket);
        let first = self.queue.with(&self.key, first).flatten();
        let before = self.ticket.zip(first).map_or(0, |(own, first)| own.saturating_sub(first));
        LOOK_INTERVAL.saturating_mul(1 + u32::try_from(before / 8).unwrap_or(u32::MAX))
    }
}
