//! At most one line of a kind in each second for each store, whatever the load. The level debug has all lines.
//!
//! A process that stood still finds thousands of its locks lost in one moment. The first one is logged. A second later, one line
//! says how many lines were left out.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

use crate::events::event::Event;

/// The time between two lines of a kind.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The stores and kinds of events that had lines.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<HashMap<Line, Window>>);

/// Which lines count together: the store's name and the kind of the event.
pub(crate) type Line = (Arc<str>, Discriminant<Event>);

struct Window {
    since: BootInstant,
    left_out: u64,
}

/// Whether an event has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    Line,
    /// It is counted. `first`: it is the first one that is left out, so somebody must say at `end` how many there were.
    LeftOut {
        first: bool,
        end: BootInstant,
    },
}

impl LineLimit {
    pub(crate) fn admit(&self, line: &Line, now: BootInstant) -> Admitted {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.get_mut(line) else {
            windows.insert(line.clone(), Window { since: now, left_out: 0 });
            return Admitted::Line;
        };
        // While some are left out, the line that counts them is the next one.
        if window.left_out == 0 && now.since(window.since) >= LINE_INTERVAL {
            window.since = now;
            return Admitted::Line;
        }
        window.left_out += 1;
        Admitted::LeftOut { first: window.left_out == 1, end: window.since.after(LINE_INTERVAL) }
    }

    /// How many lines were left out. The line about them begins a new second.
    pub(crate) fn take_left_out(&self, line: &Line, now: BootInstant) -> u64 {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.get_mut(line).map_or(0, |window| {
            window.since = now;
            std::mem::take(&mut window.left_out)
        })
    }
}

pub(crate) fn line_about(store: &Arc<str>, event: &Event) -> Line {
    (store.clone(), discriminant(event))
}

#[cfg(test)]
mod tests {
    use dlock_store::Clock;

    use super::*;

    #[test]
    fn each_second_has_one_line_of_a_kind_for_each_store() {
        let (limit, clock) = (LineLimit::default(), Clock::manual());
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let near = line_about(&one, &Event::NearExpiry { remaining: LINE_INTERVAL });
        let busy = line_about(&one, &Event::Busy { waited: LINE_INTERVAL });
        let of_other = line_about(&other, &Event::Busy { waited: LINE_INTERVAL });
        assert!([&near, &busy, &of_other].iter().all(|line| limit.admit(line, clock.now()) == Admitted::Line));
        let end = clock.now().after(LINE_INTERVAL);
        clock.advance(LINE_INTERVAL / 2);
        assert_eq!(limit.admit(&near, clock.now()), Admitted::LeftOut { first: true, end });
        assert_eq!(limit.admit(&near, clock.now()), Admitted::LeftOut { first: false, end });
        clock.advance(LINE_INTERVAL / 2);
        assert_eq!(limit.admit(&busy, clock.now()), Admitted::Line);
        // The line about those that were left out is late.
        assert_eq!(limit.admit(&near, clock.now()), Admitted::LeftOut { first: false, end });
        assert_eq!(limit.take_left_out(&near, clock.now()), 3);
        assert!(matches!(limit.admit(&near, clock.now()), Admitted::LeftOut { first: true, .. }));
        clock.advance(LINE_INTERVAL);
        assert_eq!(limit.take_left_out(&near, clock.now()), 1);
        clock.advance(LINE_INTERVAL);
        assert_eq!(limit.admit(&near, clock.now()), Admitted::Line);
    }
}
