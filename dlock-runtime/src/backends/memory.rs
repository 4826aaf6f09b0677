//! The lock inside one process: the contract at its simplest, and the reference for the other backends.
//!
//! Leases, fencing tokens and a line in order of arrival, on the suspend-proof clock. Nothing is kept for a key that
//! nobody holds or waits for. Clones share one store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::backend::{Attempt, Backend, Claim, Hold, Released, Signal, Stand, Standing, Validity, Wake};
use crate::capabilities::{Capabilities, Durability, Expiry, Fencing, TtlRange, WakeStyle};
use crate::clock::{BootInstant, Clock};
use crate::error::{Error, Result};
use crate::key::{LockKey, MAX_KEY_BYTES};
use crate::note::Note;
use crate::owner::Owner;

/// Locks among the tasks and threads of one process; for tests, tools and single-process services.
#[derive(Clone, Debug)]
pub struct Memory {
    clock: Clock,
    capabilities: Arc<Capabilities>,
    locks: Arc<Mutex<Locks>>,
}

#[derive(Debug)]
struct Locks {
    by_key: HashMap<LockKey, Lock>,
    token: u64,
}

/// Present only while somebody holds or waits.
#[derive(Debug, Default)]
struct Lock {
    holder: Option<Holder>,
    line: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Holder {
    owner: Owner,
    token: u64,
    ends: BootInstant,
    note: Note,
}

#[derive(Debug)]
struct Waiter {
    claim: Arc<Claim>,
    news: oneshot::Sender<Hold>,
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
        let capabilities = Capabilities {
            expiry: Expiry::Lease,
            ttl: TtlRange {
                min: Duration::from_millis(10),
                max: Duration::from_secs(10 * 365 * 86_400),
                step: Duration::ZERO,
            },
            expires_alone: true,
            // Seeded by the wall clock, so a resource that outlives the process sees rising tokens all the same.
            fencing: Fencing::MonotonicUnlessFailover,
            fair: true,
            read_write: false,
            permits: false,
            min_hold: false,
            once_per: false,
            wake: WakeStyle::Grant,
            connection_per_hold: false,
            takeover_delay: Duration::ZERO,
            durability: Durability::Memory,
            max_key_bytes: MAX_KEY_BYTES,
        };
        Self {
            clock: clock.clone(),
            capabilities: Arc::new(capabilities),
            locks: Arc::new(Mutex::new(Locks { by_key: HashMap::new(), token: clock.wall_ms().saturating_mul(1000) })),
        }
    }

    /// How many keys are held or waited for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Is nothing held and nobody waiting?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deletes a lock as an operator of a store would; its holder learns of it at the next renewal.
    pub fn forget(&self, key: &LockKey) {
        self.lock().by_key.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempt(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        let now = self.clock.now();
        let mut locks = self.lock();
        let Locks { by_key, token } = &mut *locks;
        let lock = by_key.entry(claim.key.clone()).or_default();
        lock.settle(now, token);
        if let Some(holder) = lock.holder.as_mut().filter(|holder| holder.owner == claim.owner) {
            holder.ends = now.after(claim.ttl);
            return hold(claim, holder.token, now).map(Attempt::Acquired);
        }
        let Some(holder) = &lock.holder else {
            return lock.grant(claim, now, token).map(Attempt::Acquired);
        };
        let (ends, left) = (holder.ends, holder.ends.since(now));
        if stand == Stand::No {
            return Ok(Attempt::Contended(Wake::poll().lease_left(left)));
        }
        let (news, granted) = oneshot::channel();
        match lock.line.iter_mut().find(|waiter| waiter.claim.owner == claim.owner) {
            // Asked again: the place stays.
            Some(waiter) => waiter.news = news,
            None => lock.line.push_back(Waiter { claim: claim.clone(), news }),
        }
        let wake = Wake::on(async move { Ok(granted.await.map_or(Signal::Ask, Signal::Granted)) });
        Ok(Attempt::Contended(wake.ask_by(ends).lease_left(left)))
    }

    /// Changes one lock, and forgets it if nobody holds or waits for it afterwards.
    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Lock, BootInstant, &mut u64) -> T) -> Option<T> {
        let now = self.clock.now();
        let mut locks = self.lock();
        let Locks { by_key, token } = &mut *locks;
        let lock = by_key.get_mut(key)?;
        lock.settle(now, token);
        let changed = change(lock, now, token);
        if lock.holder.is_none() && lock.line.is_empty() {
            by_key.remove(key);
        }
        Some(changed)
    }

    fn free(&self, claim: &Claim) -> bool {
        let freed = self.with(&claim.key, |lock, now, token| {
            lock.line.retain(|waiter| waiter.claim.owner != claim.owner);
            let ours = lock.holder.as_ref().is_some_and(|holder| holder.owner == claim.owner);
            if ours {
                lock.holder = None;
                lock.settle(now, token);
            }
            ours
        });
        freed == Some(true)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Lock {
    /// Ends an expired hold, and hands a free lock to the first of the line that still listens.
    fn settle(&mut self, now: BootInstant, token: &mut u64) {
        if self.holder.as_ref().is_some_and(|holder| holder.ends <= now) {
            self.holder = None;
        }
        while self.holder.is_none() {
            let Some(waiter) = self.line.pop_front() else { return };
            let granted = self.grant(&waiter.claim, now, token);
            let heard = granted.is_ok_and(|hold| waiter.news.send(hold).is_ok());
            if !heard {
                self.holder = None;
            }
        }
    }

    fn grant(&mut self, claim: &Arc<Claim>, now: BootInstant, token: &mut u64) -> Result<Hold> {
        let next = token
            .checked_add(1)
            .ok_or_else(|| Error::new(crate::ErrorKind::FenceExhausted, "the fencing counter has no further number"))?;
        *token = next;
        self.line.retain(|waiter| waiter.claim.owner != claim.owner);
        self.holder =
            Some(Holder { owner: claim.owner, token: next, ends: now.after(claim.ttl), note: claim.note.clone() });
        hold(claim, next, now)
    }
}

fn hold(claim: &Arc<Claim>, token: u64, from: BootInstant) -> Result<Hold> {
    Hold::new(claim.clone(), token, Validity { from, granted: claim.ttl })
}

impl Backend for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move { self.attempt(claim, stand) })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            holds
                .iter()
                .map(|hold| {
                    let claim = &hold.claim;
                    let renewed = self.with(&claim.key, |lock, now, _| {
                        let holder = lock.holder.as_mut().filter(|holder| holder.owner == claim.owner)?;
                        holder.ends = now.after(claim.ttl);
                        Some(Validity { from: now, granted: claim.ttl })
                    });
                    Ok(renewed.flatten().map_or(Standing::Lost, Standing::Renewed))
                })
                .collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { Ok(if self.free(&hold.claim) { Released::Released } else { Released::NotOwner }) })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.free(claim);
            Ok(())
        })
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(async move { Ok(self.with(key, |lock, _, _| lock.holder.as_ref().map(|h| h.note.clone())).flatten()) })
    }
}

/// Opens `memory://`: a new, empty store. It takes nothing else, since nobody else could reach it.
pub(crate) fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    if !url.eq_ignore_ascii_case("memory://") {
        return Err(Error::config("url", "the memory backend takes no host, path or option: write memory://"));
    }
    Ok(Arc::new(Memory::with_clock(clock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn claim(key: &'static str) -> Arc<Claim> {
        let key = LockKey::new("test", Key::text(key)).unwrap();
        Arc::new(Claim::new(key, Duration::from_secs(1), "test").unwrap())
    }

    fn ask(store: &Memory, claim: &Arc<Claim>, stand: Stand) -> Attempt {
        store.attempt(claim, stand).unwrap()
    }

    fn until(clock: &Clock) -> Stand {
        Stand::Until(clock.now().after(Duration::from_secs(60)))
    }

    #[test]
    fn the_line_is_served_in_order_and_forgotten() {
        let clock = Clock::manual();
        let store = Memory::with_clock(&clock);
        let claims: Vec<_> = (0..3).map(|_| claim("k")).collect();
        let Attempt::Acquired(mut held) = ask(&store, &claims[0], Stand::No) else { panic!("free") };
        let mut wakes: Vec<_> = claims[1..]
            .iter()
            .map(|claim| match ask(&store, claim, until(&clock)) {
                Attempt::Contended(wake) => wake,
                other => panic!("taken, but {other:?}"),
            })
            .collect();
        for (next, wake) in claims[1..].iter().zip(&mut wakes) {
            let token = held.token;
            assert_eq!(futures::executor::block_on(store.release(&held)).unwrap(), Released::Released);
            let signal = futures::executor::block_on(wake.signal.take().unwrap()).unwrap();
            let Signal::Granted(granted) = signal else { panic!("handed over") };
            assert_eq!(granted.claim.owner, next.owner);
            assert!(granted.token > token);
            held = granted;
        }
        futures::executor::block_on(store.release(&held)).unwrap();
        assert!(store.is_empty());
    }

    #[test]
    fn an_expired_hold_goes_to_the_line_not_to_the_asker() {
        let clock = Clock::manual();
        let store = Memory::with_clock(&clock);
        let (first, second, third) = (claim("k"), claim("k"), claim("k"));
        ask(&store, &first, Stand::No);
        let Attempt::Contended(wake) = ask(&store, &second, until(&clock)) else { panic!("taken") };
        clock.advance(Duration::from_secs(2));
        assert!(matches!(ask(&store, &third, Stand::No), Attempt::Contended(_)));
        let signal = futures::executor::block_on(wake.signal.unwrap()).unwrap();
        assert!(matches!(signal, Signal::Granted(hold) if hold.claim.owner == second.owner));
    }

    #[test]
    fn a_waiter_that_is_gone_is_passed_over() {
        let clock = Clock::manual();
        let store = Memory::with_clock(&clock);
        let (first, gone) = (claim("k"), claim("k"));
        let Attempt::Acquired(held) = ask(&store, &first, Stand::No) else { panic!("free") };
        drop(ask(&store, &gone, until(&clock)));
        futures::executor::block_on(store.release(&held)).unwrap();
        assert!(store.is_empty());
    }

    #[test]
    fn the_url_takes_nothing() {
        let error = open("memory://user:secret@host", &Clock::system()).err().unwrap();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
