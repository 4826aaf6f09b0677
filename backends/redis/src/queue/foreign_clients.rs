//! Decides when a release asks the server whether it is the turn of foreign clients, which poll for a literal name.
//!
//! The server keeps the turns, for all processes. This file only decides when to ask for them, so that other releases
//! are unchanged. If a foreign client was seen lately, each release asks. A queue that has met none pauses for a moment
//! now and then, because a foreign client that finds each lock handed on leaves no trace.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// After a foreign client was seen, each release asks for a turn for this long. The server remembers the client for the
/// same time.
const SEEN_FOR: Duration = Duration::from_secs(60);

/// The first and the last pause after which a wait queue that has met no foreign client looks for one. Each next pause
/// is twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// A turn of the wait queue lasts at least as long as one of its holds, less an eighth because holds differ in length.
/// For holds shorter than this, such a turn would be too short to pay off. So it gets the longest time.
const SHORT_HOLD: Duration = Duration::from_millis(5);
const LONGEST_TURN: Duration = Duration::from_millis(250);

/// If this process has heard nothing of a wait queue for this time, the queue may have ended.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// The most keys that are remembered.
const MAX_KNOWN_KEYS: usize = 4096;

/// The literal names for which others wait.
#[derive(Debug, Default)]
pub(crate) struct ForeignClients {
    keys: Mutex<HashMap<LockKey, Known>>,
    /// Whether there is any key. A program without contention pays one load.
    used: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    seen: Option<BootInstant>,
    heard: BootInstant,
    look: BootInstant,
    pause: Duration,
    /// The average length of our holds. The last ones count most, but one long hold changes little.
    held: Option<Duration>,
}

impl Known {
    fn new(now: BootInstant) -> Self {
        Self { seen: None, heard: now, look: now.after(FIRST_LOOK), pause: FIRST_LOOK, held: None }
    }

    fn turn_after(&mut self, held: Duration) -> Duration {
        let held = self.held.map_or(held, |earlier| earlier * 7 / 8 + held / 8);
        self.held = Some(held);
        if held < SHORT_HOLD { LONGEST_TURN } else { (held * 7 / 8).min(LONGEST_TURN) }
    }

    fn is_seen(&self, now: BootInstant) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) < SEEN_FOR)
    }

    fn is_over(&self, now: BootInstant) -> bool {
        !self.is_seen(now) && now.since(self.heard) >= SILENCE_LIMIT
    }
}

impl ForeignClients {
    /// Notes that others have the lock or wait for it. `is_theirs`: a foreign client has it, or it is the turn of
    /// foreign clients.
    pub(crate) fn note(&self, key: &LockKey, is_theirs: bool, now: BootInstant) {
        if key.as_str().starts_with("dl1:") {
            return;
        }
        self.used.store(true, Ordering::Relaxed);
        let mut keys = self.keys();
        if keys.len() >= MAX_KNOWN_KEYS {
            keys.retain(|_, known| !known.is_over(now));
        }
        if keys.len() >= MAX_KNOWN_KEYS && !keys.contains_key(key) {
            return;
        }
        let known = keys.entry(key.clone()).or_insert_with(|| Known::new(now));
        if known.is_over(now) {
            *known = Known::new(now);
        }
        known.heard = now;
        if is_theirs {
            known.seen = Some(now);
        }
    }

    /// Whether the release of a hold must ask if it is the turn of foreign clients. Returns the least length of the
    /// queue's own turn.
    ///
    /// If no foreign client was seen, it returns the pause before this look, less an eighth: the server counts from the
    /// end of the last look, which any process may have made. The pause is longer than any turn, so the server can tell
    /// the two apart.
    pub(crate) fn turn_after(&self, key: &LockKey, held: Duration, now: BootInstant) -> Option<Duration> {
        if !self.used.load(Ordering::Relaxed) {
            return None;
        }
        let mut keys = self.keys();
        let known = keys.get_mut(key)?;
        if known.is_over(now) {
            keys.remove(key);
            return None;
        }
        let turn = known.turn_after(held);
        if known.is_seen(now) {
            return Some(turn);
        }
        if now < known.look {
            return None;
        }
        let paused = known.pause * 7 / 8;
        known.pause = (known.pause * 2).min(LAST_LOOK);
        known.look = now.after(known.pause);
        Some(paused)
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<LockKey, Known>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_contract::Key;
    use dlock_store::Clock;

    const MS: Duration = Duration::from_millis(1);

    fn key(n: u32) -> LockKey {
        LockKey::new("t", Key::text("k:").value(&n)).unwrap().literal().unwrap()
    }

    #[test]
    fn a_line_that_met_nobody_looks_seldom_and_only_while_it_lasts() {
        let (strangers, start) = (ForeignClients::default(), Clock::manual().now());
        let looks = |from: u64, to: u64| {
            let looks = |ms: &u64| {
                let now = start.after(Duration::from_millis(*ms));
                strangers.note(&key(1), false, now);
                strangers.turn_after(&key(1), MS, now).map(|pause| (*ms, pause.as_millis()))
            };
            (from..to).step_by(10).filter_map(|ms| looks(&ms)).collect::<Vec<_>>()
        };
        // Each returned pause is longer than any turn, and shorter than the time since the look before.
        assert_eq!(looks(0, 8000), [(300, 262), (900, 525), (2100, 1050), (4100, 1750), (6100, 1750)]);
        assert_eq!(looks(10_000, 10_500), [(10_300, 262)]);
        assert!(strangers.turn_after(&key(1), MS, start.after(Duration::from_secs(12))).is_none());
        assert!(strangers.keys().is_empty());
    }

    #[test]
    fn each_release_of_a_minute_looks_for_a_foreign_client_that_was_seen() {
        let (strangers, start) = (ForeignClients::default(), Clock::manual().now());
        strangers.note(&key(1), true, start);
        for second in [0, 1, 30, 59] {
            assert!(strangers.turn_after(&key(1), MS, start.after(Duration::from_secs(second))).is_some());
            assert!(strangers.turn_after(&key(2), MS, start.after(Duration::from_secs(second))).is_none());
        }
        assert!(strangers.turn_after(&key(1), MS, start.after(SEEN_FOR)).is_none());
    }

    #[test]
    fn a_turn_lasts_as_long_as_a_hold() {
        let (strangers, start) = (ForeignClients::default(), Clock::manual().now());
        for n in 1..=4 {
            strangers.note(&key(n), true, start);
        }
        let turn = |n: u32, ms: u32| strangers.turn_after(&key(n), ms * MS, start).unwrap().as_millis();
        assert_eq!(turn(1, 0), 250);
        assert_eq!(turn(2, 8), 7);
        assert_eq!(turn(3, 300), 250);
        assert_eq!(turn(4, 32), 28);
        // One hold is long. Later all holds are.
        assert_eq!(turn(4, 112), 36);
        for _ in 0..50 {
            turn(4, 100);
        }
        assert_eq!(turn(4, 100), 87);
    }

    #[test]
    fn names_of_ours_have_no_strangers_and_others_are_bounded() {
        let (strangers, now) = (ForeignClients::default(), Clock::manual().now());
        strangers.note(&LockKey::new("t", Key::text("k")).unwrap(), true, now);
        assert!(strangers.keys().is_empty());
        for n in 0..5000 {
            strangers.note(&key(n), true, now);
        }
        assert_eq!(strangers.keys().len(), MAX_KNOWN_KEYS);
        strangers.note(&key(4999), true, now.after(SEEN_FOR));
        assert_eq!(strangers.keys().len(), 1);
    }
}
