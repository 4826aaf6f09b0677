//! Which rows were contended a moment ago, and which ones may be.
//!
//! A caller that asks for a contended row goes to the room at once. If it asked for the row first, a process that has just
//! released the row would take it before the first waiter, which hears of the free row a moment later.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// How long a note counts.
const MOMENT: Duration = Duration::from_secs(1);

/// A hold of this length may have kept others waiting.
const LONG_HOLD: Duration = Duration::from_millis(50);

/// After so many short holds of one row others may wait for it. More often would cost an uncontended row a request per hold.
const SHORT_HOLDS: u64 = 8;

/// So many rows are remembered before old ones are looked for.
const MANY: usize = 1024;

/// How many rows have their short holds counted at once. Rows with one place forget each other's count.
const COUNTED: usize = 256;

/// The outlook for a row: whether others want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Nothing, or that there were none.
    Quiet,
    /// They may wait in the room.
    Unknown,
    /// They had the lock or waited for it a moment ago.
    Contended,
}

/// The rows that were contended, or may be.
#[derive(Debug)]
pub(crate) struct Recent {
    rows: Mutex<Rows>,
    /// Of one row each: a part of its hash, and in the lowest byte how many short holds it had.
    counts: Box<[AtomicU64; COUNTED]>,
    hashes: RandomState,
}

#[derive(Debug)]
struct Rows {
    seen: HashMap<Box<str>, (BootInstant, Outlook)>,
    /// How many there may be until old ones are looked for.
    limit: usize,
}

impl Default for Recent {
    fn default() -> Self {
        let rows = Mutex::new(Rows { seen: HashMap::new(), limit: MANY });
        Self { rows, counts: Box::new([const { AtomicU64::new(0) }; COUNTED]), hashes: RandomState::new() }
    }
}

impl Recent {
    /// Others have the lock, or wait for it.
    pub(crate) fn note(&self, row: &str, now: BootInstant) {
        self.insert(row, now, Outlook::Contended);
    }

    /// A hold of this process has ended. `has_waited`: its caller waited for others before.
    pub(crate) fn note_end(&self, row: &str, held: Duration, has_waited: bool, now: BootInstant) {
        if has_waited {
            self.note(row, now);
        } else if (held >= LONG_HOLD || self.has_had_many(row)) && self.of(row, now) == Outlook::Quiet {
            self.insert(row, now, Outlook::Unknown);
        }
    }

    /// Nobody waits in the room.
    pub(crate) fn note_free(&self, row: &str) {
        let mut rows = self.lock();
        if rows.seen.get(row).is_some_and(|(_, outlook)| *outlook == Outlook::Unknown) {
            rows.seen.remove(row);
        }
    }

    pub(crate) fn of(&self, row: &str, now: BootInstant) -> Outlook {
        match self.lock().seen.get(row) {
            Some((seen, outlook)) if now.since(*seen) < MOMENT => *outlook,
            _ => Outlook::Quiet,
        }
    }

    fn insert(&self, row: &str, now: BootInstant, outlook: Outlook) {
        let mut rows = self.lock();
        if let Some(seen) = rows.seen.get_mut(row) {
            *seen = (now, outlook);
            return;
        }
        if rows.seen.len() >= rows.limit {
            rows.seen.retain(|_, (seen, _)| now.since(*seen) < MOMENT);
            // Otherwise each insert would look at all of them, if none is old.
            rows.limit = MANY.max(rows.seen.len() * 2);
        }
        rows.seen.insert(row.into(), (now, outlook));
    }

    /// Counts one short hold. True for the last one of each [`SHORT_HOLDS`].
    fn has_had_many(&self, row: &str) -> bool {
        const COUNT: u64 = 0xff;
        let hash = self.hashes.hash_one(row);
        let place = usize::try_from(hash % COUNTED as u64).unwrap_or_default();
        let Some(place) = self.counts.get(place) else { return false };
        let before = place.load(Ordering::Relaxed);
        let count = if (before ^ hash) & !COUNT == 0 { (before & COUNT) + 1 } else { 1 };
        place.store((hash & !COUNT) | (count % SHORT_HOLDS), Ordering::Relaxed);
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
        assert_eq!(recent.of("a", NOW.after(MOMENT / 2)), Outlook::Contended);
        assert_eq!(recent.of("b", NOW.after(MOMENT / 2)), Outlook::Quiet);
        assert_eq!(recent.of("a", NOW.after(MOMENT)), Outlook::Quiet);
    }

    #[test]
    fn a_hold_that_waited_or_was_long_is_noted_at_its_end() {
        let recent = Recent::default();
        recent.note_end("waited", Duration::ZERO, true, NOW);
        assert_eq!(recent.of("waited", NOW), Outlook::Contended);
        recent.note_end("long", LONG_HOLD, false, NOW);
        assert_eq!(recent.of("long", NOW), Outlook::Unknown);
        recent.note_free("long");
        assert_eq!(recent.of("long", NOW), Outlook::Quiet);
        // A fact is not replaced by a guess.
        recent.note_end("waited", LONG_HOLD, false, NOW);
        recent.note_free("waited");
        assert_eq!(recent.of("waited", NOW), Outlook::Contended);
    }

    #[test]
    fn every_eighth_short_hold_of_a_row_is_noted() {
        let recent = Recent::default();
        for _ in 0..3 {
            for turn in 1..=SHORT_HOLDS {
                assert_eq!(recent.of("a", NOW), Outlook::Quiet, "{turn}");
                recent.note_end("a", Duration::ZERO, false, NOW);
            }
            assert_eq!(recent.of("a", NOW), Outlook::Unknown);
            recent.note_free("a");
        }
        (0..10_000).for_each(|row| recent.note_end(&row.to_string(), Duration::ZERO, false, NOW));
        assert!(recent.lock().seen.is_empty(), "rows of one hold each were noted");
    }

    #[test]
    fn old_rows_are_forgotten_when_there_are_many() {
        let recent = Recent::default();
        (0..MANY).for_each(|row| recent.note(&row.to_string(), NOW));
        recent.note("late", NOW.after(MOMENT));
        assert_eq!(recent.lock().seen.len(), 1);
    }
}
