//! At most eight holds in a row go to one process while another one waits for the same key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// A hold that comes this long after the last one begins a new streak.
const STREAK_PAUSE: Duration = Duration::from_secs(1);

/// The most keys that are remembered.
const MOST_KEYS: usize = 4096;

/// How many holds in a row this process has had of each key. A process that has had its share leaves the lock to a process
/// that waits. How it learns of that one is the store's own matter.
///
/// Remembers up to 4096 keys. A streak ends with a hold of another process, and with a pause of one second.
///
/// ```
/// use std::time::Duration;
///
/// use dlock_contract::{Key, LockKey};
/// use dlock_store::{Clock, Streaks};
///
/// let (streaks, now) = (Streaks::new(Duration::from_millis(200)), Clock::system().now());
/// let key = LockKey::new("app", Key::text("stock:7"))?;
/// for _ in 0..Streaks::SHARE {
///     assert!(!streaks.end_streak_if_over(&key, now));
///     streaks.held(&key, now);
/// }
/// assert!(streaks.end_streak_if_over(&key, now));
/// # Ok::<(), dlock_contract::Error>(())
/// ```
#[derive(Debug)]
pub struct Streaks {
    given_way_for: Duration,
    streaks: Mutex<HashMap<LockKey, Streak>>,
}

#[derive(Debug)]
struct Streak {
    holds: u32,
    last: BootInstant,
    /// Since when the lock is left to others.
    given_way: Option<BootInstant>,
}

impl Streaks {
    /// The most holds that a process has in a row while another process waits.
    pub const SHARE: u32 = 8;

    /// `given_way_for`: how long the lock is left to a process that waits. That one may be stopped, so after this time the
    /// count of holds begins again.
    pub fn new(given_way_for: Duration) -> Self {
        Self { given_way_for, streaks: Mutex::default() }
    }

    /// Whether this process has had its share. Then a waiter of another process comes first.
    pub fn end_streak_if_over(&self, key: &LockKey, now: BootInstant) -> bool {
        let mut streaks = self.lock();
        let Some(streak) = streaks.get(key) else { return false };
        let is_over = now.since(streak.last) >= STREAK_PAUSE
            || streak.given_way.is_some_and(|since| now.since(since) >= self.given_way_for);
        if is_over {
            streaks.remove(key);
            return false;
        }
        streak.holds >= Self::SHARE
    }

    /// Notes that the lock is left to a waiter from now on.
    pub fn gives_way(&self, key: &LockKey, now: BootInstant) {
        if let Some(streak) = self.lock().get_mut(key) {
            streak.given_way.get_or_insert(now);
        }
    }

    /// Notes a hold of this process.
    pub fn held(&self, key: &LockKey, now: BootInstant) {
        let mut streaks = self.lock();
        if streaks.len() >= MOST_KEYS && !streaks.contains_key(key) {
            streaks.retain(|_, streak| now.since(streak.last) < STREAK_PAUSE);
            if streaks.len() >= MOST_KEYS {
                return;
            }
        }
        let before = streaks.get(key).filter(|streak| now.since(streak.last) < STREAK_PAUSE);
        let holds = before.map_or(0, |streak| streak.holds).saturating_add(1);
        streaks.insert(key.clone(), Streak { holds, last: now, given_way: None });
    }

    /// Notes that another process has the lock, or that none waits for it.
    pub fn end(&self, key: &LockKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockKey, Streak>> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;

    use super::*;
    use crate::Clock;

    fn key(number: u32) -> LockKey {
        LockKey::new("t", Key::text("k:").value(&number)).unwrap()
    }

    fn after_its_share(at: BootInstant) -> Streaks {
        let streaks = Streaks::new(Duration::from_millis(200));
        for _ in 0..Streaks::SHARE {
            assert!(!streaks.end_streak_if_over(&key(0), at));
            streaks.held(&key(0), at);
        }
        assert!(streaks.end_streak_if_over(&key(0), at));
        streaks
    }

    #[test]
    fn a_streak_ends_with_the_hold_of_another_process_and_with_a_pause() {
        let start = Clock::manual().now();
        let streaks = after_its_share(start);
        streaks.end(&key(0));
        assert!(!streaks.end_streak_if_over(&key(0), start));
        let streaks = after_its_share(start);
        assert!(!streaks.end_streak_if_over(&key(0), start.after(STREAK_PAUSE)));
        streaks.held(&key(0), start.after(STREAK_PAUSE));
        assert!(!streaks.end_streak_if_over(&key(0), start.after(STREAK_PAUSE)));
    }

    #[test]
    fn a_waiter_that_does_not_come_is_waited_for_once() {
        let start = Clock::manual().now();
        let at = |ms| start.after(Duration::from_millis(ms));
        let streaks = after_its_share(start);
        streaks.gives_way(&key(0), at(100));
        streaks.gives_way(&key(0), at(250));
        assert!(streaks.end_streak_if_over(&key(0), at(299)));
        assert!(!streaks.end_streak_if_over(&key(0), at(300)));
        assert!(!streaks.end_streak_if_over(&key(0), at(301)));
    }

    #[test]
    fn the_keys_are_bounded_and_forgotten() {
        let (streaks, start) = (Streaks::new(Duration::ZERO), Clock::manual().now());
        (0..5000).for_each(|number| streaks.held(&key(number), start));
        assert_eq!(streaks.lock().len(), MOST_KEYS);
        streaks.held(&key(4999), start.after(STREAK_PAUSE));
        assert_eq!(streaks.lock().len(), 1);
    }
}
