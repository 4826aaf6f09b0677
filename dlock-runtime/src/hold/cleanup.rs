//! Locks that are given back later, on our thread: one queue for each store, bounded in length and in width.
//!
//! Each call that fails during an outage may leave something to be undone. A task for each would starve the renewals of
//! healthy stores, which share the thread, and would grow without end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock, Result};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::events::shutdown::Job;
use crate::hold::health::Health;
use crate::hold::jitter::full_jitter;

/// So many duties are tried side by side: as many as leave in one batch where a store has batches.
const WIDTH: usize = 64;

/// So many wait at most. Beyond, the one is given up whose lease ends first.
const MOST: usize = 16_384;

/// The bounds of the pause after a failed try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Something in a store that our thread gives back.
pub(crate) trait Undo: Send {
    /// Asks the store once.
    fn attempt(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Lets the next caller of this process ask, although this is not done.
    fn let_neighbours_go(&mut self);
}

/// Something that our thread gives back: it tries until that is done, or has ended by itself.
pub(crate) struct Duty {
    undo: Box<dyn Undo>,
    /// When its lease is over.
    gone: BootInstant,
    /// Does the store end it then?
    expires_alone: bool,
    tries: u32,
    /// A shutdown waits for it.
    job: Job,
}

/// The duties of one store.
pub(crate) struct Cleanups {
    clock: Clock,
    health: Arc<Health>,
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

impl Duty {
    pub(crate) fn new(undo: Box<dyn Undo>, gone: BootInstant, expires_alone: bool, job: Job) -> Self {
        Self { undo, gone, expires_alone, tries: 0, job }
    }

    /// Tries once; when to try again, if that is worth it.
    async fn fulfil(mut self, clock: &Clock) -> Option<(BootInstant, Self)> {
        let answer = self.undo.attempt().await;
        self.undo.let_neighbours_go();
        let error = answer.err()?;
        let now = clock.now();
        // A lease that ends by itself needs no help beyond its end; a shared one is kept alive by its neighbours.
        let over = self.expires_alone && now >= self.gone;
        if over || !error.is_retryable() || self.job.given_up() {
            return None;
        }
        let pause = full_jitter(self.tries, FIRST_PAUSE, LONGEST_PAUSE);
        self.tries += 1;
        Some((now.after(pause), self))
    }
}

impl Cleanups {
    pub(crate) fn new(clock: &Clock, health: &Arc<Health>) -> Self {
        Self { clock: clock.clone(), health: health.clone(), queue: Mutex::default(), news: Notify::new() }
    }

    /// Takes a duty over. One that cannot be tried at once lets its neighbours go on before.
    pub(crate) fn add(self: &Arc<Self>, mut duty: Duty, now: BootInstant) {
        // Nothing could be given back any more; the ttl does it.
        let Ok(background) = background() else { return duty.undo.let_neighbours_go() };
        let mut given_up = None;
        let mut queue = self.lock();
        let is_busy = queue.trying + queue.waiting.len() >= WIDTH;
        if queue.waiting.len() >= MOST {
            let first = queue.waiting.iter().min_by_key(|(_, duty)| duty.gone).map(|(key, _)| *key);
            given_up = first.and_then(|key| queue.waiting.remove(&key));
        }
        if is_busy || self.health.holds_back_until().is_some() {
            drop(queue);
            // Outside of the lock: it wakes others.
            duty.undo.let_neighbours_go();
            queue = self.lock();
        }
        queue.put(now, duty);
        let starts = !std::mem::replace(&mut queue.is_driven, true);
        drop(queue);
        drop(given_up);
        if starts {
            background.spawn(drive(self.clone()));
        } else {
            self.news.notify_one();
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
async fn drive(cleanups: Arc<Cleanups>) {
    let clock = &cleanups.clock;
    let mut trying = FuturesUnordered::new();
    loop {
        let next = loop {
            let Some(due) = cleanups.lock().waiting.keys().next().map(|(due, _)| *due) else { break None };
            // A store that keeps failing is asked by one duty at a time, as it is by one call.
            let (due, is_held_back) = match cleanups.health.holds_back_until() {
                Some(until) => (due.max(until), true),
                None => (due, false),
            };
            let now = clock.now();
            if due > now || trying.len() >= WIDTH || (is_held_back && cleanups.health.admit(|| now).is_err()) {
                break Some(due);
            }
            let mut queue = cleanups.lock();
            let Some((_, duty)) = queue.waiting.pop_first() else { continue };
            queue.trying += 1;
            drop(queue);
            // A backend may panic; the others want to be given back all the same.
            trying.push(AssertUnwindSafe(duty.fulfil(clock)).catch_unwind());
        };
        if trying.is_empty() && next.is_none() {
            let mut queue = cleanups.lock();
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
                let mut queue = cleanups.lock();
                queue.trying -= 1;
                if let Some((due, duty)) = again {
                    queue.put(due, duty);
                }
            }
            () = sleep(clock, next), if can_start => {}
            () = cleanups.news.notified(), if can_start => {}
        }
    }
}

async fn sleep(clock: &Clock, until: Option<BootInstant>) {
    match until {
        Some(due) => {
            // A probe that another caller has made instead: a moment later again.
            let least = clock.now().after(Duration::from_millis(10));
            clock.sleep_until(due.max(least)).await;
        }
        None => std::future::pending().await,
    }
}
