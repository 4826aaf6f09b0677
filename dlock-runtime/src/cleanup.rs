//! Locks that are given back later, on our thread: one queue for each store, bounded in length and in width.
//!
//! Each call that fails during an outage may leave something to be undone. A task for each would starve the renewals of
//! healthy stores, which share the thread, and would grow without end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::release::Duty;
use crate::store::Store;

/// So many duties are tried side by side: as many as leave in one batch where a store has batches.
const WIDTH: usize = 64;

/// So many wait at most. Beyond, the one is given up whose lease ends first.
const MOST: usize = 16_384;

/// The duties of one store.
#[derive(Default)]
pub(crate) struct Cleanups {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Default)]
struct Queue {
    /// By when they are due.
    waiting: BTreeMap<(BootInstant, u64), Duty>,
    last: u64,
    /// Tried now.
    trying: usize,
    /// Does a task drive it?
    is_driven: bool,
}

impl Cleanups {
    /// Takes a duty over. One that cannot be tried at once lets its neighbours go on before.
    pub(crate) fn add(store: &Arc<Store>, mut duty: Duty, now: BootInstant) {
        // Nothing could be given back any more; the ttl does it.
        let Ok(background) = background() else { return duty.let_neighbours_go() };
        let mut given_up = None;
        let mut queue = store.cleanups.lock();
        let is_busy = queue.trying + queue.waiting.len() >= WIDTH;
        if queue.waiting.len() >= MOST {
            let first = queue.waiting.iter().min_by_key(|(_, duty)| duty.gone()).map(|(key, _)| *key);
            given_up = first.and_then(|key| queue.waiting.remove(&key));
        }
        if is_busy || store.health.holds_back_until().is_some() {
            drop(queue);
            // Outside of the lock: it wakes others.
            duty.let_neighbours_go();
            queue = store.cleanups.lock();
        }
        queue.put(now, duty);
        let starts = !std::mem::replace(&mut queue.is_driven, true);
        drop(queue);
        drop(given_up);
        if starts {
            background.spawn(drive(store.clone()));
        } else {
            store.cleanups.news.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn put(&mut self, due: BootInstant, duty: Duty) {
        self.last += 1;
        self.waiting.insert((due, self.last), duty);
    }
}

/// Tries what is due, until nothing is left.
async fn drive(store: Arc<Store>) {
    let mut trying = FuturesUnordered::new();
    loop {
        let next = loop {
            let Some((due, clock)) =
                store.cleanups.lock().waiting.iter().next().map(|((due, _), duty)| (*due, duty.clock()))
            else {
                break None;
            };
            // A store that keeps failing is asked by one duty at a time, as it is by one call.
            let (due, is_held_back) = match store.health.holds_back_until() {
                Some(until) => (due.max(until), true),
                None => (due, false),
            };
            let now = clock.now();
            if due > now || trying.len() >= WIDTH || (is_held_back && store.health.admit(|| now).is_err()) {
                break Some((due, clock));
            }
            let mut queue = store.cleanups.lock();
            let Some((_, duty)) = queue.waiting.pop_first() else { continue };
            queue.trying += 1;
            drop(queue);
            // A backend may panic; the others want to be given back all the same.
            trying.push(AssertUnwindSafe(duty.fulfil()).catch_unwind());
        };
        if trying.is_empty() && next.is_none() {
            let mut queue = store.cleanups.lock();
            if queue.waiting.is_empty() {
                queue.is_driven = false;
                return;
            }
            continue;
        }
        let can_start = trying.len() < WIDTH;
        tokio::select! {
            Some(tried) = trying.next() => {
                let again = tried.ok().flatten();
                let mut queue = store.cleanups.lock();
                queue.trying -= 1;
                if let Some((due, duty)) = again {
                    queue.put(due, duty);
                }
            }
            () = sleep(next), if can_start => {}
            () = store.cleanups.news.notified(), if can_start => {}
        }
    }
}

async fn sleep(until: Option<(BootInstant, Clock)>) {
    match until {
        Some((due, clock)) => {
            // A probe that another caller has made instead: a moment later again.
            let least = clock.now().after(Duration::from_millis(10));
            clock.sleep_until(due.max(least)).await;
        }
        None => std::future::pending().await,
    }
}
