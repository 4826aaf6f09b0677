//! At most one line of a kind in each second for each store, whatever the load. The level debug has all lines.
//!
//! A process that stood still finds thousands of its locks lost in one moment. The first one is logged. The next line of the kind says
//! how many were left out; if there is none, a line of its own does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// The time between two lines of a kind.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The stores and kinds that had lines.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<HashMap<Line, Window>>);

/// Which lines count together: the store's name, the kind of the event, and its cause or the kind of its error.
pub(crate) type Line = (Arc<str>, &'static str, &'static str);

struct Window {
    since: BootInstant,
    left_out: u64,
}

/// Whether an event has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// So many were left out before it.
    Line { left_out: u64 },
    /// It is counted. If it is the first one of its second, somebody has to look later whether a line has told of it.
    LeftOut { look: Option<Look> },
}

/// When to look whether a line has told of those that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) at: BootInstant,
    since: BootInstant,
}

impl LineLimit {
    pub(crate) fn admit(&self, line: &Line, now: BootInstant) -> Admitted {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.get_mut(line) else {
            windows.insert(line.clone(), Window { since: now, left_out: 0 });
            return Admitted::Line { left_out: 0 };
        };
        if now.since(window.since) >= LINE_INTERVAL {
            window.since = now;
            return Admitted::Line { left_out: std::mem::take(&mut window.left_out) };
        }
        window.left_out += 1;
        let look = Look { at: window.since.after(2 * LINE_INTERVAL), since: window.since };
        Admitted::LeftOut { look: (window.left_out == 1).then_some(look) }
    }

    /// How many lines no line has told of.
    pub(crate) fn take_untold(&self, line: &Line, look: Look) -> u64 {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.get_mut(line).filter(|window| window.since == look.since);
        window.map_or(0, |window| {
            // The next one has a line again.
            window.since = look.at.before(LINE_INTERVAL);
            std::mem::take(&mut window.left_out)
        })
    }
}

#[cfg(test)]
mod tests {
    use dlock_store::Clock;

    use super::*;

    #[test]
    fn each_second_has_one_line_of_a_kind_for_each_store() {
        let (limit, clock) = (LineLimit::default(), Clock::manual());
        let line = |store: &str, cause| (store.into(), "lost", cause);
        let lost = line("one", "deadline");
        for line in [&lost, &line("one", "broken"), &line("two", "deadline")] {
            assert_eq!(limit.admit(line, clock.now()), Admitted::Line { left_out: 0 });
        }
        clock.advance(LINE_INTERVAL / 2);
        let Admitted::LeftOut { look: Some(look) } = limit.admit(&lost, clock.now()) else { panic!("it is left out") };
        assert_eq!(limit.admit(&lost, clock.now()), Admitted::LeftOut { look: None });
        clock.advance(LINE_INTERVAL / 2);
        // The next line tells of them, and nobody has to.
        assert_eq!(limit.admit(&lost, clock.now()), Admitted::Line { left_out: 2 });
        assert_eq!(limit.take_untold(&lost, look), 0);
        let Admitted::LeftOut { look: Some(look) } = limit.admit(&lost, clock.now()) else { panic!("it is left out") };
        assert_eq!(look.at, clock.now().after(2 * LINE_INTERVAL));
        clock.advance(2 * LINE_INTERVAL);
        assert_eq!(limit.take_untold(&lost, look), 1);
        assert_eq!(limit.admit(&lost, clock.now()), Admitted::Line { left_out: 0 });
    }
}
