//! The lock inside one process: the contract at its simplest, and the reference for the other backends.
//!
//! Leases, fencing tokens, every mode, and a wait queue in order of arrival, on the suspend-proof clock. Nothing is
//! kept for a key that nobody holds or waits for, but the record of its runs. Clones share one store.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod broken;
mod inspect;
mod lock;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Exchange, Fencing, Health, Hold, Inspect, Keeps, LastSuccess, LockKey,
    LockState, Periods, Profile, Queue, Released, Reservation, Reserved, Result, RunEnd, Standing, Together, Tokens,
    TtlRange, WakeStyle,
};
use dlock_store::{Clock, Opener, UrlBody, UrlForm};
use futures::future::BoxFuture;

use broken::Broken;
use lock::{Lock, Moment, News};
use runs::Runs;

/// Locks among the tasks and threads of one process; for tests, tools and single-process services.
#[derive(Clone, Debug)]
pub struct Memory {
    clock: Clock,
    profile: Arc<Profile>,
    locks: Arc<Mutex<LockTable>>,
}

#[derive(Debug)]
struct LockTable {
    by_key: HashMap<LockKey, Lock>,
    token: u64,
    runs: Runs,
    broken: Broken,
}

impl Memory {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(&Clock::system())
    }

    /// An empty store on this clock.
    #[must_use]
    pub fn with_clock(clock: &Clock) -> Self {
        let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(10 * 365 * 86_400));
        let profile = Profile::new("memory", ttl).with(|memory| {
            // Seeded by the wall clock, so a resource that outlives the process sees rising tokens all the same.
            memory.fencing = Fencing::MonotonicUnlessFailover;
            (memory.fair, memory.read_write, memory.permits) = (true, true, true);
            memory.wake = WakeStyle::Grant;
        });
        Self {
            clock: clock.clone(),
            profile: Arc::new(profile),
            locks: Arc::new(Mutex::new(LockTable {
                by_key: HashMap::new(),
                token: clock.wall_ms().saturating_mul(1000),
                runs: Runs::default(),
                broken: Broken::default(),
            })),
        }
    }

    /// How many keys are held or waited for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Whether no lock is held or waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deletes a lock as an operator of a store would; its holder learns of it at the next renewal.
    pub fn forget(&self, key: &LockKey) {
        let removed = self.lock().by_key.remove(key);
        // After the table is unlocked, because this wakes waiters.
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, LockTable> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one lock, and sends the notifications.
    fn change<T>(&self, key: &LockKey, change: impl FnOnce(&mut Lock, &mut Moment<'_>) -> T) -> T {
        let (output, news) = self.locked(key, change);
        self.tell(news);
        output
    }

    /// Sends notifications, and takes back the grants that no waiter took.
    fn tell(&self, news: News) {
        let mut untaken = news.tell();
        while let Some(hold) = untaken.pop() {
            let ((), news) = self.locked(&hold.claim.key, |lock, moment| lock.take_back(&hold, moment));
            untaken.extend(news.tell());
        }
    }

    /// Changes one lock, and grants it to waiters for which there is room now. Forgets it if nobody holds or waits for it
    /// afterwards. Returns the notifications.
    fn locked<T>(&self, key: &LockKey, change: impl FnOnce(&mut Lock, &mut Moment<'_>) -> T) -> (T, News) {
        let mut news = News::default();
        let mut locks = self.lock();
        let LockTable { by_key, token, runs, .. } = &mut *locks;
        let mut entry = match by_key.entry(key.clone()) {
            Entry::Occupied(lock) => lock,
            Entry::Vacant(free) => free.insert_entry(Lock::default()),
        };
        let mut moment = Moment { now: self.clock.now(), clock: &self.clock, token, runs, news: &mut news };
        entry.get_mut().settle(&mut moment);
        let output = change(entry.get_mut(), &mut moment);
        entry.get_mut().settle(&mut moment);
        if entry.get().is_idle() {
            entry.remove();
        }
        (output, news)
    }

    fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        self.change(&claim.key, |lock, moment| lock.ask(claim, queue, moment))
    }

    /// Several locks in one step, all or none.
    fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        let mut news = News::default();
        let answer = self.locked_all(claims, &mut news);
        self.tell(news);
        answer
    }

    fn locked_all(&self, claims: &[Arc<Claim>], news: &mut News) -> Result<Together> {
        let mut locks = self.lock();
        let LockTable { by_key, token, runs, .. } = &mut *locks;
        let mut moment = Moment { now: self.clock.now(), clock: &self.clock, token, runs, news };
        let mut all_free = true;
        for claim in claims {
            let Some(lock) = by_key.get_mut(&claim.key) else { continue };
            lock.settle(&mut moment);
            all_free &= lock.is_open_to(&claim.owner);
            if lock.is_idle() {
                by_key.remove(&claim.key);
            }
        }
        if !all_free {
            return Ok(Together::Contended);
        }
        let mut holds = Vec::with_capacity(claims.len());
        for claim in claims {
            let lock = by_key.entry(claim.key.clone()).or_default();
            if let Attempt::Acquired(hold) = lock.ask(claim, Queue::Leave, &mut moment)? {
                holds.push(hold);
            }
        }
        Ok(Together::Acquired(holds))
    }

    fn free(&self, claim: &Claim, keep: Option<Duration>, run: Option<RunEnd>) -> Released {
        match self.change(&claim.key, |lock, moment| lock.end(claim, keep, run, moment)) {
            true => Released::Released,
            false => Released::NotOwner,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Memory {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move { self.attempt(claim, queue) })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let renew = |hold: &&Hold| {
                let renewed = self.change(&hold.claim.key, |lock, moment| lock.renew(&hold.claim, moment));
                Ok(renewed.map_or(Standing::Lost, Standing::Renewed))
            };
            holds.iter().map(renew).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { Ok(self.free(&hold.claim, None, None)) })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.change(&claim.key, |lock, moment| lock.abandon(claim, moment));
            Ok(())
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move { Ok(self.change(key, |lock, moment| lock.state(moment.now))) })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async { Ok(Health::new()) })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        Some(self)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

impl Keeps for Memory {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { Ok(self.free(&hold.claim, Some(time), run)) })
    }
}

impl Periods for Memory {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { Ok(self.free(&hold.claim, None, Some(run))) })
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move { Ok(self.lock().runs.last_success(key)) })
    }
}

impl Tokens for Memory {
    fn reserve<'a>(&'a self, hold: &'a Hold, reservation: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(
            async move { self.change(&hold.claim.key, |lock, moment| lock.reserve(&hold.claim, reservation, moment)) },
        )
    }
}

impl Exchange for Memory {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let freed = self.free(&hold.claim, None, None);
            Ok((freed, self.attempt(next, Queue::until(until)).ok()))
        })
    }
}

impl Batch for Memory {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(async move { self.attempt_all(claims) })
    }
}

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |_, clock| {
    let opened: Result<Arc<dyn Backend>> = Ok(Arc::new(Memory::with_clock(clock)));
    Box::pin(std::future::ready(opened))
});

/// Each URL is a new, empty store. It takes nothing else, since nobody else could reach it.
const FORM: UrlForm = UrlForm::new("a memory URL", "memory://", &["memory"], UrlBody::Nothing);
