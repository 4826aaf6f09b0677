//! How many holds in a row this process has had, and how often it asks while others have the lock. The nodes remember the
//! processes that wait, so a process that has had its share leaves the lock to them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// The most holds that a process has in a row while another process waits.
pub(super) const MOST_HOLDS: u32 = 8;

/// Holds with a longer pause between them are no row.
const A_ROW: Duration = Duration::from_secs(1);

/// A waiter asks again after about a quarter of the time for which it has seen the present hold, within these bounds.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(60), Duration::from_millis(800));

/// How long the nodes remember a process that waits. It asks again before.
pub(super) const WAITER_MEMORY: Duration = Duration::from_secs(2);

/// The most keys that are remembered.
const MOST_KEYS: usize = 4096;

/// The keys that this process has held or waited for lately.
#[derive(Debug, Default)]
pub(super) struct Rows(Mutex<HashMap<LockKey, Row>>);

#[derive(Debug)]
struct Row {
    holds: u32,
    /// Whether the nodes may have noted that this process waits.
    is_noted: bool,
    /// The holder that was seen last, and since when.
    holder: Option<(String, BootInstant)>,
    last: BootInstant,
}

impl Row {
    fn new(now: BootInstant) -> Self {
        Self { holds: 0, is_noted: false, holder: None, last: now }
    }
}

impl Rows {
    /// Whether this process has had its share of holds, and whether the nodes may have noted that it waits.
    pub(super) fn state(&self, key: &LockKey, now: BootInstant) -> (bool, bool) {
        let rows = self.rows();
        rows.get(key)
            .map_or((false, false), |row| (row.holds >= MOST_HOLDS && now.since(row.last) < A_ROW, row.is_noted))
    }

    /// Notes a hold of this process.
    pub(super) fn held(&self, key: &LockKey, now: BootInstant) {
        self.change(key, now, |row| {
            let holds = if now.since(row.last) < A_ROW { row.holds.saturating_add(1) } else { 1 };
            *row = Row { holds, ..Row::new(now) };
        });
    }

    /// Notes that others have the lock, and returns when to ask again. `holder`: its owner, if there is one.
    pub(super) fn refused(&self, key: &LockKey, holder: Option<&str>, waits: bool, now: BootInstant) -> BootInstant {
        let mut seen = Duration::ZERO;
        self.change(key, now, |row| {
            row.is_noted |= waits;
            let Some(holder) = holder else { return };
            row.holds = 0;
            match &row.holder {
                Some((known, since)) if known == holder => seen = now.since(*since),
                _ => row.holder = Some((holder.to_owned(), now)),
            }
        });
        now.after((seen / 4).clamp(POLL_PAUSES.0, POLL_PAUSES.1).mul_f64(0.5 + fastrand::f64()))
    }

    fn change(&self, key: &LockKey, now: BootInstant, change: impl FnOnce(&mut Row)) {
        let mut rows = self.rows();
        if rows.len() >= MOST_KEYS && !rows.contains_key(key) {
            rows.retain(|_, row| now.since(row.last) < WAITER_MEMORY);
            if rows.len() >= MOST_KEYS {
                return;
            }
        }
        let row = rows.entry(key.clone()).or_insert_with(|| Row::new(now));
        change(row);
        row.last = now;
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<LockKey, Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dlock_contract::Key;
    use dlock_store::Clock;

    use super::*;

    #[test]
    fn a_row_ends_with_the_hold_of_another_process_and_with_a_pause() {
        let (rows, start) = (Rows::default(), Clock::manual().now());
        let key = LockKey::new("t", Key::text("k")).unwrap();
        let at = |ms: u64| start.after(Duration::from_millis(ms));
        for hold in 0..8 {
            assert!(!rows.state(&key, at(hold)).0);
            rows.held(&key, at(hold));
        }
        assert!(rows.state(&key, at(8)).0 && !rows.state(&key, at(2000)).0);
        // Nobody has it, but others wait.
        rows.refused(&key, None, true, at(9));
        assert_eq!(rows.state(&key, at(10)), (true, true));
        rows.refused(&key, Some("a"), true, at(10));
        assert_eq!(rows.state(&key, at(11)), (false, true));
        rows.held(&key, at(12));
        assert_eq!(rows.state(&key, at(12)), (false, false));
    }

    #[test]
    fn a_waiter_asks_less_often_while_one_hold_lasts() {
        let (rows, start) = (Rows::default(), Clock::manual().now());
        let key = LockKey::new("t", Key::text("k")).unwrap();
        let pause = |holder, ms: u64| {
            let now = start.after(Duration::from_millis(ms));
            rows.refused(&key, Some(holder), true, now).since(now)
        };
        assert!(pause("a", 0) <= Duration::from_millis(90));
        assert!(pause("a", 60_000) >= Duration::from_millis(400));
        assert!(pause("a", 60_000) < WAITER_MEMORY);
        assert!(pause("b", 60_001) <= Duration::from_millis(90));
    }

    #[test]
    fn the_keys_are_bounded_and_forgotten() {
        let (rows, start) = (Rows::default(), Clock::manual().now());
        let key = |n: u32| LockKey::new("t", Key::text("k:").value(&n)).unwrap();
        (0..5000).for_each(|n| rows.held(&key(n), start));
        assert_eq!(rows.rows().len(), MOST_KEYS);
        rows.held(&key(4999), start.after(WAITER_MEMORY));
        assert_eq!(rows.rows().len(), 1);
    }
}
