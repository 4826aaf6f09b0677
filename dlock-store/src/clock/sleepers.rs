//! Tasks that sleep on a clock, and the instants at which they wake.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use dlock_contract::BootInstant;
use dlock_contract::engine::caught;

use crate::thread::background::is_forked;

/// The sleeping tasks, by the instant at which they wake. Our thread drives the system clock's sleepers; `advance`
/// drives a manual clock's.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// Several tables: nearly every request has a bound, and their tasks should not meet on one mutex.
    tables: [AlignedTable; TABLES],
    /// When the driver looks again by itself, in nanoseconds. Most sleeps are bounds of requests and end unused: only
    /// one that is earlier than this is worth waking the driver for.
    armed: AtomicU64,
    /// Tells the driver that an earlier sleep was added.
    earlier: tokio::sync::Notify,
}

const TABLES: usize = 8;

/// Aligned, so that two of them never lie together in the processor's cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct AlignedTable(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    wakers: BTreeMap<(BootInstant, u64), Waker>,
}

impl Default for Sleepers {
    fn default() -> Self {
        let armed = AtomicU64::new(BootInstant::NEVER.as_nanos());
        Self { tables: Default::default(), armed, earlier: tokio::sync::Notify::new() }
    }
}

impl Sleepers {
    pub(crate) fn set(&self, until: BootInstant, entry: Option<u64>, waker: &Waker) -> u64 {
        let index = entry.map_or_else(index_of_thread, |entry| entry as usize % TABLES);
        let mut table = self.table(index);
        let entry = entry.unwrap_or_else(|| {
            table.next += 1;
            table.next * TABLES as u64 + index as u64
        });
        let old = table.wakers.insert((until, entry), waker.clone());
        drop(table);
        // Outside of the lock: it may be the last that a foreign executor has of its task.
        drop(old);
        // After the entry was made: the driver disarms before it looks. So it sees the entry, or this sees that it has
        // disarmed.
        if until.as_nanos() < self.armed.load(Ordering::SeqCst) {
            self.armed.fetch_min(until.as_nanos(), Ordering::SeqCst);
            self.earlier.notify_one();
        }
        entry
    }

    pub(crate) fn clear(&self, until: BootInstant, entry: u64) {
        let index = entry as usize % TABLES;
        let mut table = match self.tables[index].0.try_lock() {
            Ok(table) => table,
            // In a child after `fork` nobody unlocks it. Asked last, since it is a system call.
            Err(TryLockError::WouldBlock) if is_forked() => return,
            Err(_) => self.table(index),
        };
        let waker = table.wakers.remove(&(until, entry));
        drop(table);
        drop(waker);
    }

    /// Wakes every sleep that is over at `now`; gives the end of the next one.
    pub(crate) fn wake_due(&self, now: BootInstant) -> Option<BootInstant> {
        self.armed.store(BootInstant::NEVER.as_nanos(), Ordering::SeqCst);
        let mut next = BootInstant::NEVER;
        for index in 0..TABLES {
            let mut table = self.table(index);
            let later = table.wakers.split_off(&(BootInstant::from_nanos(now.as_nanos().saturating_add(1)), 0));
            let due = std::mem::replace(&mut table.wakers, later);
            next = table.wakers.first_key_value().map_or(next, |(key, _)| next.min(key.0));
            drop(table);
            due.into_values().for_each(wake);
        }
        self.armed.fetch_min(next.as_nanos(), Ordering::SeqCst);
        (next < BootInstant::NEVER).then_some(next)
    }

    /// Wakes every sleep, whose owner then looks at what has changed.
    pub(crate) fn wake_all(&self) {
        for index in 0..TABLES {
            let wakers: Vec<_> = self.table(index).wakers.values().cloned().collect();
            // Outside of the lock.
            wakers.into_iter().for_each(wake);
        }
    }

    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }

    fn table(&self, index: usize) -> MutexGuard<'_, Table> {
        self.tables[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        (0..TABLES).map(|index| self.table(index).wakers.len()).sum()
    }
}

/// The index of the table for sleeps that begin on this thread.
fn index_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static INDEX: usize = THREADS.fetch_add(1, Ordering::Relaxed) % TABLES);
    INDEX.try_with(|index| *index).unwrap_or_default()
}

/// Wakes a task. A waker is foreign code: one that panics must not end the thread that all locks depend on.
pub fn wake(waker: Waker) {
    caught(|| waker.wake());
}
