//! The wait queues of one store, one for each key that is wanted.

use std::collections::hash_map::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use dlock_contract::LockKey;
use dlock_store::engine::SoleThread;

use super::key_queue::{KeyQueue, Waiter};
use crate::sync::{Mutex, MutexGuard, wake};

/// The wait queues of one store, by the full key. Spring Integration shared 256 queues among all keys, and callers of
/// different keys blocked each other (its issue 11146).
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    /// Several tables, so that callers of different keys do not meet on one mutex.
    shards: [Shard; 16],
}

/// Aligned, so that two shards never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) queues: HashMap<LockKey, KeyQueue>,
    /// The number of the last turn that was given.
    pub(super) last_turn: u64,
}

impl LocalQueue {
    /// Whether a caller on this thread holds the lock, has the turn or waits for it. Parking the thread would keep that
    /// caller from going on.
    pub(crate) fn has(&self, key: &LockKey, sole_thread: SoleThread) -> bool {
        let shard = self.shard(key);
        let Some(key_queue) = shard.queues.get(key) else { return false };
        let waits = |waiter: &Waiter| waiter.request.sole_thread == Some(sole_thread);
        let sole_thread = Some(sole_thread);
        key_queue.turn.as_ref().is_some_and(|owner| owner.sole_thread == sole_thread)
            || key_queue.holds.iter().any(|hold| hold.sole_thread == sole_thread)
            || key_queue.in_store_queue().any(|waiter| waiter.sole_thread == sole_thread)
            || key_queue.waiting().any(waits)
    }

    /// The keys for which callers wait, with their number.
    pub(crate) fn waited_for(&self) -> Vec<(LockKey, usize)> {
        let mut waited = Vec::new();
        for table in self.tables() {
            let counts = table.queues.iter().map(|(key, queue)| (key, queue.waiter_count()));
            waited.extend(counts.filter(|(_, count)| *count > 0).map(|(key, count)| (key.clone(), count)));
        }
        waited
    }

    pub(super) fn shard(&self, key: &LockKey) -> MutexGuard<'_, Table> {
        // This only spreads callers over mutexes, so a sum is enough: values differ at a key's end. The tables hash
        // properly.
        let sum =
            key.as_str().bytes().rev().take(8).fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.shards[sum % self.shards.len()].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = MutexGuard<'_, Table>> {
        self.shards.iter().map(|shard| shard.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of next waiters to which a hold with this ttl may be passed on, counted up to `most`.
    pub(crate) fn members(&self, key: &LockKey, ttl: Duration, most: u32) -> u32 {
        let members = |key_queue: &mut KeyQueue| {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            key_queue.waiting().take(most).take_while(|waiter| waiter.request.cohort_ttl == Some(ttl)).count()
        };
        self.with(key, members).and_then(|members| u32::try_from(members).ok()).unwrap_or(0)
    }

    pub(super) fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut KeyQueue) -> T) -> Option<T> {
        self.shard(key).queues.get_mut(key).map(change)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables().map(|table| table.queues.len()).sum()
    }
}

/// Changes the key's queue and calls its next waiter, or forgets the queue if no caller needs it any more.
pub(super) fn call_next(mut shard: MutexGuard<'_, Table>, key: &LockKey, change: impl FnOnce(&mut KeyQueue)) {
    let Table { queues, last_turn } = &mut *shard;
    let Some(key_queue) = queues.get_mut(key) else { return };
    change(key_queue);
    let Some((ticket, Waiter { waker, request })) = key_queue.take_next() else {
        key_queue.turn = None;
        if key_queue.is_forgotten() {
            queues.remove(key);
        }
        return;
    };
    *last_turn += 1;
    key_queue.give_turn(*last_turn, request.clone());
    key_queue.waiters().called = Some((ticket, request));
    drop(shard);
    if let Some(waker) = waker {
        wake(waker);
    }
}
