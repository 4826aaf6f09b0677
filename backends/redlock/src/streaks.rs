//! How many holds in a row this process has had, and how often it asks while others have the lock. The nodes remember the
//! processes that wait, so a process that has had its share leaves the lock to them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// The most holds that a process has in a row while another process waits.
pub(super) const MOST_HOLDS: u32 = dlock_store::Streaks::SHARE;

/// Holds with a longer pause between them are not one streak.
const STREAK_PAUSE: Duration = Duration::from_secs(1);

/// A waiter asks again after about a quarter of the time for which it has seen the present hold, within these bounds.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(60), Duration::from_millis(800));

/// How long the nodes remember a process that waits. It asks again before.
pub(super) const WAITER_MEMORY: Duration = Duration::from_secs(2);

/// The most keys that are remembered.
const MOST_KEYS: usize = 4096;

/// The keys that this process has held or waited for lately.
#[derive(Debug, Default)]
pub(super) struct Streaks(Mutex<HashMap<LockKey, Streak>>);

#[derive(Debug)]
struct Streak {
    holds: u32,
    /// Whether the nodes may have noted that this process waits.
    is_noted: bool,
    /// The holder that was seen last, and since when.
    holder: Option<(String, BootInstant)>,
    /// Whether another process may have waited when this one got its last hold.
    others_wait: bool,
    last: BootInstant,
}

/// The knowledge of this process about a key before it asks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// It has had its share of holds.
    pub(super) had_share: bool,
    /// With the next hold it has had its share.
    pub(super) gets_share: bool,
    /// The nodes may have noted that it waits.
    pub(super) is_noted: bool,
    /// Others had the lock or may have waited for it when the nodes answered last.
    pub(super) others: bool,
}

impl Streak {
    fn new(now: BootInstant) -> Self {
        Self { holds: 0, is_noted: false, holder: None, others_wait: false, last: now }
    }
}

impl Streaks {
    /// The streak as it is before the next attempt.
    pub(super) fn state(&self, key: &LockKey, now: BootInstant) -> State {
        let streaks = self.streaks();
        let Some(streak) = streaks.get(key) else { return State::default() };
        let holds = if now.since(streak.last) < STREAK_PAUSE { streak.holds } else { 0 };
        State {
            had_share: holds >= MOST_HOLDS,
            gets_share: holds + 1 >= MOST_HOLDS,
            is_noted: streak.is_noted,
            others: streak.holder.is_some() || streak.others_wait,
        }
    }

    /// Notes a hold of this process, and whether another process may have waited then.
    pub(super) fn held(&self, key: &LockKey, others_wait: bool, now: BootInstant) {
        self.change(key, now, |streak| {
            let holds = if now.since(streak.last) < STREAK_PAUSE { streak.holds.saturating_add(1) } else { 1 };
            *streak = Streak { holds, others_wait, ..Streak::new(now) };
        });
    }

    /// Notes that others have the lock, and returns when to ask again. `holder`: its owner, if there is one.
    pub(super) fn refused(&self, key: &LockKey, holder: Option<&str>, waits: bool, now: BootInstant) -> BootInstant {
        let mut seen = Duration::ZERO;
        self.change(key, now, |streak| {
            streak.is_noted |= waits;
            let Some(holder) = holder else { return };
            streak.holds = 0;
            match &streak.holder {
                Some((known, since)) if known == holder => seen = now.since(*since),
                _ => streak.holder = Some((holder.to_owned(), now)),
            }
        });
        now.after((seen / 4).clamp(POLL_PAUSES.0, POLL_PAUSES.1).mul_f64(0.5 + fastrand::f64()))
    }

    fn change(&self, key: &LockKey, now: BootInstant, change: impl FnOnce(&mut Streak)) {
        let mut streaks = self.streaks();
        if streaks.len() >= MOST_KEYS && !streaks.contains_key(key) {
            streaks.retain(|_, streak| now.since(streak.last) < WAITER_MEMORY);
            if streaks.len() >= MOST_KEYS {
                return;
            }
        }
        let streak = streaks.entry(key.clone()).or_insert_with(|| Streak::new(now));
        change(streak);
        streak.last = now;
    }

    fn streaks(&self) -> MutexGuard<'_, HashMap<LockKey, Streak>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;
    use dlock_store::Clock;

    use super::*;

    #[test]
    fn a_streak_ends_with_the_hold_of_another_process_and_with_a_pause() {
        let (streaks, start) = (Streaks::default(), Clock::manual().now());
        let key = LockKey::new("t", Key::text("k")).unwrap();
        let at = |ms: u64| start.after(Duration::from_millis(ms));
        for hold in 0..8 {
            let state = streaks.state(&key, at(hold));
            assert!(!state.had_share && state.gets_share == (hold == 7));
            streaks.held(&key, false, at(hold));
        }
        assert!(streaks.state(&key, at(8)).had_share && !streaks.state(&key, at(2000)).had_share);
        // Nobody has it, but others wait.
        streaks.refused(&key, None, true, at(9));
        let state = State { had_share: true, gets_share: true, is_noted: true, others: false };
        assert_eq!(streaks.state(&key, at(10)), state);
        streaks.refused(&key, Some("a"), true, at(10));
        assert_eq!(streaks.state(&key, at(11)), State { is_noted: true, others: true, ..State::default() });
        streaks.held(&key, false, at(12));
        assert_eq!(streaks.state(&key, at(12)), State::default());
        streaks.held(&key, true, at(13));
        assert_eq!(streaks.state(&key, at(14)), State { others: true, ..State::default() });
    }

    #[test]
    fn a_waiter_asks_less_often_while_one_hold_lasts() {
        let (streaks, start) = (Streaks::default(), Clock::manual().now());
        let key = LockKey::new("t", Key::text("k")).unwrap();
        let pause = |holder, ms: u64| {
            let now = start.after(Duration::from_millis(ms));
            streaks.refused(&key, Some(holder), true, now).since(now)
        };
        assert!(pause("a", 0) <= Duration::from_millis(90));
        assert!(pause("a", 60_000) >= Duration::from_millis(400));
        assert!(pause("a", 60_000) < WAITER_MEMORY);
        assert!(pause("b", 60_001) <= Duration::from_millis(90));
    }

    #[test]
    fn the_keys_are_bounded_and_forgotten() {
        let (streaks, start) = (Streaks::default(), Clock::manual().now());
        let key = |n: u32| LockKey::new("t", Key::text("k:").value(&n)).unwrap();
        (0..5000).for_each(|n| streaks.held(&key(n), false, start));
        assert_eq!(streaks.streaks().len(), MOST_KEYS);
        streaks.held(&key(4999), false, start.after(WAITER_MEMORY));
        assert_eq!(streaks.streaks().len(), 1);
    }
}
