//! The queue of locks that our thread gives back later. Each store has one. Both the number of locks that wait and the
//! number that are tried at a time are bounded.
//!
//! Each call that fails during an outage may leave something to undo. With a task for each call, the renewals of
//! healthy stores on the same thread would starve, and the tasks would grow without bound.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Result};
use dlock_store::engine::simulation::planted;
use dlock_store::{Clock, background};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::events::shutdown::Job;
use crate::hold::circuit_breaker::CircuitBreaker;
use crate::hold::jitter::full_jitter;

/// The most duties that are tried side by side: as many as one batch of a store has.
const MOST_TRIED: usize = 64;

/// The most duties that wait. Beyond this, the duty whose lease ends first is given up.
const MOST_WAITING: usize = 16_384;

/// The bounds of the pause after a failed try.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A hold or an attempt in a store that our thread releases or abandons later.
pub(crate) trait Undo: Send {
    /// Asks the store once.
    fn attempt(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Lets the next caller of this process ask, although this is not done.
    fn let_neighbours_go(&mut self);
}

/// An undo that our thread tries until it is done, or until the lease has ended.
pub(crate) struct Duty {
    undo: Box<dyn Undo>,
    lease_ends: BootInstant,
    /// Whether the store ends it by itself at that time.
    expires_alone: bool,
    tries: u32,
    /// A shutdown waits for it.
    job: Job,
}

/// The duties of one store.
pub(crate) struct Cleanups {
    clock: Clock,
    breaker: Arc<CircuitBreaker>,
    queue: Mutex<CleanupQueue>,
    news: Notify,
}

#[derive(Default)]
struct CleanupQueue {
    /// Ordered by the time of the next try.
    waiting: BTreeMap<(BootInstant, u64), Duty>,
    last: u64,
    /// The number of duties that are tried now.
    trying: usize,
    /// Whether a task drives the queue.
    is_driven: bool,
}

impl Duty {
    pub(crate) fn new(undo: Box<dyn Undo>, lease_ends: BootInstant, expires_alone: bool, job: Job) -> Self {
        Self { undo, lease_ends, expires_alone, tries: 0, job }
    }

    /// Tries once. Returns the time of the next try if there is one.
    async fn fulfil(mut self, clock: &Clock) -> Option<(BootInstant, Self)> {
        let answer = self.undo.attempt().await;
        self.undo.let_neighbours_go();
        let error = answer.err()?;
        let now = clock.now();
        // A lease that ends by itself needs no undo after its end. A lease that several holds share is kept alive by
        // the others.
        let lease_is_over = self.expires_alone && now >= self.lease_ends;
        if planted("an abandon is tried once") || lease_is_over || !error.is_retryable() || self.job.given_up() {
            return None;
        }
        let pause = full_jitter(self.tries, FIRST_RETRY_PAUSE, LONGEST_RETRY_PAUSE);
        self.tries += 1;
        Some((now.after(pause), self))
    }
}

impl Cleanups {
    pub(crate) fn new(clock: &Clock, breaker: &Arc<CircuitBreaker>) -> Self {
        Self { clock: clock.clone(), breaker: breaker.clone(), queue: Mutex::default(), news: Notify::new() }
    }

    /// Takes a duty over. One that cannot be tried at once lets its neighbours go on before.
    pub(crate) fn add(self: &Arc<Self>, mut duty: Duty, now: BootInstant) {
        // Without our thread nothing can be released. The ttl ends the lock.
        let Ok(background) = background() else { return duty.undo.let_neighbours_go() };
        let mut given_up = None;
        let mut queue = self.lock();
        let is_busy = queue.trying + queue.waiting.len() >= MOST_TRIED;
        if queue.waiting.len() >= MOST_WAITING {
            let first = queue.waiting.iter().min_by_key(|(_, duty)| duty.lease_ends).map(|(key, _)| *key);
            given_up = first.and_then(|key| queue.waiting.remove(&key));
        }
        if is_busy || self.breaker.holds_back_until().is_some() {
            drop(queue);
            // Outside of the lock: it wakes others.
            duty.undo.let_neighbours_go();
            queue = self.lock();
        }
        queue.put(now, duty);
        let must_start = !std::mem::replace(&mut queue.is_driven, true);
        drop(queue);
        drop(given_up);
        if must_start {
            background.spawn(drive(self.clone()));
        } else {
            self.news.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CleanupQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CleanupQueue {
    fn put(&mut self, due: BootInstant, duty: Duty) {
        self.last += 1;
        self.waiting.insert((due, self.last), duty);
    }
}

/// Tries the duties that are due, until none is left.
async fn drive(cleanups: Arc<Cleanups>) {
    let clock = &cleanups.clock;
    let mut trying = FuturesUnordered::new();
    loop {
        let next = loop {
            let Some(due) = cleanups.lock().waiting.keys().next().map(|(due, _)| *due) else { break None };
            // A store that keeps failing is asked by one duty at a time, as it is by one call.
            let (due, is_held_back) = match cleanups.breaker.holds_back_until() {
                Some(until) => (due.max(until), true),
                None => (due, false),
            };
            let now = clock.now();
            if due > now || trying.len() >= MOST_TRIED || (is_held_back && cleanups.breaker.admit(|| now).is_err()) {
                break Some(due);
            }
            let mut queue = cleanups.lock();
            let Some((_, duty)) = queue.waiting.pop_first() else { continue };
            queue.trying += 1;
            drop(queue);
            // A backend may panic. The other duties go on.
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
        let can_start = trying.len() < MOST_TRIED;
        tokio::select! {
            biased;
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
            // Another caller may have made the probe. Look again a moment later.
            let soonest = clock.now().after(Duration::from_millis(10));
            clock.sleep_until(due.max(soonest)).await;
        }
        None => std::future::pending().await,
    }
}
