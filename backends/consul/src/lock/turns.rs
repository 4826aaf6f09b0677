//! At most eight holds in a row go to one process while another one waits for the same key.
//!
//! A waiter that was passed over leaves a mark: a key of its session. A process that has had its share takes the lock only if there
//! is no mark. The mark ends with its session, and a process leaves the lock to others for a moment only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// The most holds that a process has in a row while another process waits.
pub(crate) const MOST_HOLDS: u32 = 8;

/// A hold that comes this long after the last one begins a new streak.
const STREAK_PAUSE: Duration = Duration::from_secs(1);

/// How long the lock is left to a waiter. The waiter's process may be stopped, so after this time the count of holds
/// begins again.
pub(crate) const TURN_TIME: Duration = Duration::from_millis(200);

/// The most keys that are remembered.
const MOST_KEYS: usize = 4096;

/// The keys that this store has held lately.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<LockKey, Streak>>);

#[derive(Debug)]
struct Streak {
    holds: u32,
    last: BootInstant,
    /// Since when the lock is left to others.
    given_way: Option<BootInstant>,
}

impl Turns {
    /// Whether this store has had its most holds in a row. Then a waiter of another process comes first.
    pub(crate) fn has_had_its_share(&self, key: &LockKey, now: BootInstant) -> bool {
        let mut streaks = self.streaks();
        let Some(streak) = streaks.get(key) else { return false };
        let is_over = now.since(streak.last) >= STREAK_PAUSE
            || streak.given_way.is_some_and(|since| now.since(since) >= TURN_TIME);
        if is_over {
            streaks.remove(key);
            return false;
        }
        streak.holds >= MOST_HOLDS
    }

    /// Notes that the lock is left to a waiter.
    pub(crate) fn gives_way(&self, key: &LockKey, now: BootInstant) {
        if let Some(streak) = self.streaks().get_mut(key) {
            streak.given_way.get_or_insert(now);
        }
    }

    /// Notes a hold of this store.
    pub(crate) fn held(&self, key: &LockKey, now: BootInstant) {
        let mut streaks = self.streaks();
        if streaks.len() >= MOST_KEYS {
            streaks.retain(|_, streak| now.since(streak.last) < STREAK_PAUSE);
        }
        let before =
            streaks.get(key).filter(|streak| now.since(streak.last) < STREAK_PAUSE).map_or(0, |streak| streak.holds);
        if streaks.len() < MOST_KEYS || streaks.contains_key(key) {
            streaks.insert(key.clone(), Streak { holds: before.saturating_add(1), last: now, given_way: None });
        }
    }

    /// Notes that another process has the lock.
    pub(crate) fn refused(&self, key: &LockKey) {
        self.streaks().remove(key);
    }

    fn streaks(&self) -> MutexGuard<'_, HashMap<LockKey, Streak>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
