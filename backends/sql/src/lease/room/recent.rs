//! Which rows were contended a moment ago.
//!
//! A caller that asks for such a row goes to the room at once. If it asked for the row first, a process that has just
//! released the row would take it before the first waiter, which hears of the free room a moment later.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// How long a row counts as contended.
const MOMENT: Duration = Duration::from_secs(1);

/// The most rows that are remembered, unless more are contended within a moment.
const MANY: usize = 1024;

/// The rows that were contended, and when.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<Box<str>, BootInstant>>);

impl Recent {
    pub(crate) fn note(&self, row: &str, now: BootInstant) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match rows.get_mut(row) {
            Some(seen) => *seen = now,
            None => {
                if rows.len() >= MANY {
                    rows.retain(|_, seen| now.since(*seen) < MOMENT);
                }
                rows.insert(row.into(), now);
            }
        }
    }

    pub(crate) fn has(&self, row: &str, now: BootInstant) -> bool {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(row).is_some_and(|seen| now.since(*seen) < MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_recent_for_a_moment() {
        let (recent, now) = (Recent::default(), BootInstant::from_nanos(1));
        recent.note("a", now);
        assert!(recent.has("a", now.after(MOMENT / 2)) && !recent.has("b", now));
        assert!(!recent.has("a", now.after(MOMENT)));
    }

    #[test]
    fn old_rows_are_forgotten_when_there_are_many() {
        let (recent, now) = (Recent::default(), BootInstant::from_nanos(1));
        (0..MANY).for_each(|row| recent.note(&row.to_string(), now));
        recent.note("late", now.after(MOMENT));
        assert_eq!(recent.0.lock().unwrap().len(), 1);
    }
}
