//! Remembers the rows that were contended a moment ago, and the rows that may be.
//!
//! A caller that asks for a contended row joins the wait queue at once. If it asked for the row first, a process that has just
//! released the row would take it before the first waiter, which hears of the free row a moment later.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// How long a row counts as contended.
const RECENT_FOR: Duration = Duration::from_secs(1);

/// A hold of this length may have kept others waiting.
const LONG_HOLD: Duration = Duration::from_millis(50);

/// After this many short holds of one row, other callers may wait for it. A smaller number would cost an uncontended row a
/// request for each hold or two.
const SHORT_HOLDS: u64 = 8;

/// Above this count, old rows are evicted.
const EVICT_ABOVE: usize = 1024;

/// The number of rows whose short holds are counted at once. Rows with the same slot forget each other's count.
const SLOT_COUNT: usize = 256;

/// Whether other callers want a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contention {
    /// Nothing shows that other callers want it.
    Unlikely,
    /// Other callers may wait in its queue.
    Possible,
    /// Other callers had the lock or waited for it a moment ago.
    Recent,
}

/// The rows that were contended a moment ago, or may be.
#[derive(Debug)]
pub(crate) struct Recent {
    rows: Mutex<Rows>,
    /// One entry for a row: a part of its hash, and in the lowest byte the number of its short holds.
    counts: Box<[AtomicU64; SLOT_COUNT]>,
    hashes: RandomState,
}

#[derive(Debug)]
struct Rows {
    seen: HashMap<Box<str>, (BootInstant, Contention)>,
    /// Above this count, old rows are evicted.
    limit: usize,
}

impl Default for Recent {
    fn default() -> Self {
        let rows = Mutex::new(Rows { seen: HashMap::new(), limit: EVICT_ABOVE });
        Self { rows, counts: Box::new([const { AtomicU64::new(0) }; SLOT_COUNT]), hashes: RandomState::new() }
    }
}

impl Recent {
    /// Notes that others have the lock, or wait for it.
    pub(crate) fn note(&self, row: &str, now: BootInstant) {
        self.insert(row, now, Contention::Recent);
    }

    /// Notes the end of a hold of this process. `has_waited`: its caller had to wait for others.
    pub(crate) fn note_end(&self, row: &str, held: Duration, has_waited: bool, now: BootInstant) {
        if has_waited {
            self.note(row, now);
        } else if (held >= LONG_HOLD || self.count_short_hold(row)) && self.of(row, now) == Contention::Unlikely {
            self.insert(row, now, Contention::Possible);
        }
    }

    /// Notes that nobody is in the wait queue.
    pub(crate) fn note_free(&self, row: &str) {
        let mut rows = self.lock();
        if rows.seen.get(row).is_some_and(|(_, contention)| *contention == Contention::Possible) {
            rows.seen.remove(row);
        }
    }

    pub(crate) fn of(&self, row: &str, now: BootInstant) -> Contention {
        match self.lock().seen.get(row) {
            Some((seen, contention)) if now.since(*seen) < RECENT_FOR => *contention,
            _ => Contention::Unlikely,
        }
    }

    fn insert(&self, row: &str, now: BootInstant, contention: Contention) {
        let mut rows = self.lock();
        if let Some(seen) = rows.seen.get_mut(row) {
            *seen = (now, contention);
            return;
        }
        if rows.seen.len() >= rows.limit {
            rows.seen.retain(|_, (seen, _)| now.since(*seen) < RECENT_FOR);
            // If no row is old, each insert would look at all of them otherwise.
            rows.limit = EVICT_ABOVE.max(rows.seen.len() * 2);
        }
        rows.seen.insert(row.into(), (now, contention));
    }

    /// Counts one short hold. True for the last one of each [`SHORT_HOLDS`].
    fn count_short_hold(&self, row: &str) -> bool {
        const COUNT: u64 = 0xff;
        let hash = self.hashes.hash_one(row);
        let slot = usize::try_from(hash % SLOT_COUNT as u64).unwrap_or_default();
        let Some(slot) = self.counts.get(slot) else { return false };
        let before = slot.load(Ordering::Relaxed);
        let count = if (before ^ hash) & !COUNT == 0 { (before & COUNT) + 1 } else { 1 };
        slot.store((hash & !COUNT) | (count % SHORT_HOLDS), Ordering::Relaxed);
        count == SHORT_HOLDS
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootInstant = BootInstant::from_nanos(1);

    #[test]
    fn a_row_is_recent_for_a_moment() {
        let recent = Recent::default();
        recent.note("a", NOW);
        assert_eq!(recent.of("a", NOW.after(RECENT_FOR / 2)), Contention::Recent);
        assert_eq!(recent.of("b", NOW.after(RECENT_FOR / 2)), Contention::Unlikely);
        assert_eq!(recent.of("a", NOW.after(RECENT_FOR)), Contention::Unlikely);
    }

    #[test]
    fn a_hold_that_waited_or_was_long_is_noted_at_its_end() {
        let recent = Recent::default();
        recent.note_end("waited", Duration::ZERO, true, NOW);
        assert_eq!(recent.of("waited", NOW), Contention::Recent);
        recent.note_end("long", LONG_HOLD, false, NOW);
        assert_eq!(recent.of("long", NOW), Contention::Possible);
        recent.note_free("long");
        assert_eq!(recent.of("long", NOW), Contention::Unlikely);
        // A fact is not replaced by a guess.
        recent.note_end("waited", LONG_HOLD, false, NOW);
        recent.note_free("waited");
        assert_eq!(recent.of("waited", NOW), Contention::Recent);
    }

    #[test]
    fn every_eighth_short_hold_of_a_row_is_noted() {
        let recent = Recent::default();
        for _ in 0..3 {
            for turn in 1..=SHORT_HOLDS {
                assert_eq!(recent.of("a", NOW), Contention::Unlikely, "{turn}");
                recent.note_end("a", Duration::ZERO, false, NOW);
            }
            assert_eq!(recent.of("a", NOW), Contention::Possible);
            recent.note_free("a");
        }
        (0..10_000).for_each(|row| recent.note_end(&row.to_string(), Duration::ZERO, false, NOW));
        assert!(recent.lock().seen.is_empty(), "rows of one hold each were noted");
    }

    #[test]
    fn old_rows_are_forgotten_when_there_are_many() {
        let recent = Recent::default();
        (0..EVICT_ABOVE).for_each(|row| recent.note(&row.to_string(), NOW));
        recent.note("late", NOW.after(RECENT_FOR));
        assert_eq!(recent.lock().seen.len(), 1);
    }
}
