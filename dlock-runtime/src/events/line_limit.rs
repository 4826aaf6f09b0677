//! At most one line of a store in each second, whatever the load. The level debug has all lines.
//!
//! A process that stood still finds thousands of its locks lost in one moment. The first line is written at once. The first one of
//! each other kind comes later, a second after the last line of its store, and says how many of its kind were left out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// The time between two lines of a store.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The stores that had lines, by their names.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<HashMap<Arc<str>, Turns>>);

/// Which lines count together: the kind of the event, and its cause or the kind of its error.
pub(crate) type Kind = (&'static str, &'static str);

/// Writes a line. It gets the number of lines of the same kind that were left out.
type Write = Box<dyn FnOnce(u64) + Send>;

/// The lines of one store.
struct Turns {
    free_at: BootInstant,
    /// One of each kind. So their number is bounded.
    waiting: VecDeque<Waiting>,
    /// Whether somebody will ask for the lines that wait.
    is_awaited: bool,
}

struct Waiting {
    kind: Kind,
    write: Write,
    left_out: u64,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Written,
    /// It is written or counted later. The first one of those that wait has a time at which to ask for [`LineLimit::next`].
    Later {
        ask_at: Option<BootInstant>,
    },
}

impl LineLimit {
    /// Writes the line if none of this store was written for a second. Else it waits, unless one of its kind waits already.
    pub(crate) fn line(
        &self,
        store: &Arc<str>,
        kind: Kind,
        now: BootInstant,
        write: impl FnOnce(u64) + Send + 'static,
    ) -> Put {
        let mut stores = self.stores();
        let no_line = || Turns { free_at: now, waiting: VecDeque::new(), is_awaited: false };
        let turns = stores.entry(store.clone()).or_insert_with(no_line);
        if turns.waiting.is_empty() && now >= turns.free_at {
            turns.free_at = now.after(LINE_INTERVAL);
            drop(stores);
            write(0);
            return Put::Written;
        }
        match turns.waiting.iter_mut().find(|waiting| waiting.kind == kind) {
            Some(waiting) => waiting.left_out += 1,
            None => turns.waiting.push_back(Waiting { kind, write: Box::new(write), left_out: 0 }),
        }
        let is_awaited = std::mem::replace(&mut turns.is_awaited, true);
        Put::Later { ask_at: (!is_awaited).then_some(turns.free_at) }
    }

    /// Writes the first line that waits, if it is time. Answers when to ask again, if others wait.
    pub(crate) fn next(&self, store: &str, now: BootInstant) -> Option<BootInstant> {
        let mut stores = self.stores();
        let turns = stores.get_mut(store)?;
        let due = if now >= turns.free_at { turns.waiting.pop_front() } else { None };
        if due.is_some() {
            turns.free_at = now.after(LINE_INTERVAL);
        }
        turns.is_awaited = !turns.waiting.is_empty();
        let again = turns.is_awaited.then_some(turns.free_at);
        drop(stores);
        if let Some(due) = due {
            (due.write)(due.left_out);
        }
        again
    }

    /// Writes all lines that wait: nobody asks for them later.
    pub(crate) fn end(&self) {
        let waiting: Vec<_> = self.stores().values_mut().flat_map(|turns| std::mem::take(&mut turns.waiting)).collect();
        waiting.into_iter().for_each(|waiting| (waiting.write)(waiting.left_out));
    }

    fn stores(&self) -> MutexGuard<'_, HashMap<Arc<str>, Turns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use dlock_store::Clock;

    use super::*;

    type Written = Arc<Mutex<Vec<(&'static str, u64)>>>;

    const LOST: Kind = ("lost", "deadline");
    const BROKEN: Kind = ("lost", "broken");
    const NEAR: Kind = ("near expiry", "");

    const COUNTED: Put = Put::Later { ask_at: None };

    fn put(limit: &LineLimit, written: &Written, (store, kind): (&str, Kind), now: BootInstant) -> Put {
        let (written, text) = (written.clone(), if kind.1.is_empty() { kind.0 } else { kind.1 });
        limit.line(&store.into(), kind, now, move |left_out| written.lock().unwrap().push((text, left_out)))
    }

    fn taken(written: &Written) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut *written.lock().unwrap())
    }

    #[test]
    fn each_second_has_one_line_of_a_store_and_each_kind_is_told() {
        let (limit, clock, written) = (LineLimit::default(), Clock::manual(), Written::default());
        for store in ["one", "two"] {
            assert_eq!(put(&limit, &written, (store, LOST), clock.now()), Put::Written);
        }
        assert_eq!(taken(&written).len(), 2, "each store has its own");
        let ask_at = clock.now().after(LINE_INTERVAL);
        assert_eq!(put(&limit, &written, ("one", LOST), clock.now()), Put::Later { ask_at: Some(ask_at) });
        for kind in [LOST, NEAR, LOST, BROKEN, NEAR] {
            assert_eq!(put(&limit, &written, ("one", kind), clock.now()), COUNTED, "somebody asks already");
        }
        assert_eq!(limit.next("one", clock.now()), Some(ask_at), "it is too early");
        assert!(taken(&written).is_empty());
        for expected in [("deadline", 2), ("near expiry", 1), ("broken", 0)] {
            clock.advance(LINE_INTERVAL);
            let again = limit.next("one", clock.now());
            assert_eq!((taken(&written), again.is_none()), (vec![expected], expected.0 == "broken"));
        }
        // The last line counts too.
        assert!(matches!(put(&limit, &written, ("one", LOST), clock.now()), Put::Later { ask_at: Some(_) }));
        clock.advance(LINE_INTERVAL);
        // Nobody has asked: a new line does not overtake the one that waits.
        assert_eq!(put(&limit, &written, ("one", NEAR), clock.now()), COUNTED);
        assert!(taken(&written).is_empty());
        limit.end();
        assert_eq!(taken(&written), [("deadline", 0), ("near expiry", 0)]);
    }

    #[test]
    fn after_a_quiet_second_a_line_is_written_at_once() {
        let (limit, clock, written) = (LineLimit::default(), Clock::manual(), Written::default());
        for _ in 0..3 {
            assert_eq!(put(&limit, &written, ("one", LOST), clock.now()), Put::Written);
            assert_eq!(taken(&written), [("deadline", 0)]);
            clock.advance(LINE_INTERVAL);
        }
    }
}
