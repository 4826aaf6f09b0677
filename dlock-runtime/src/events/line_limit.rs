//! At most one line of a store in each second, whatever the load. The level debug has all lines.
//!
//! A process that stood still finds thousands of its locks lost in one moment. The first line of a store is written at once. Of the
//! lines that come within a second, the first of each kind waits, and the others are only counted. One line that waits is written
//! each second, with its count.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;

/// The time between two lines of a store.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The lines of the stores, by their names.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<Stores>);

#[derive(Default)]
struct Stores {
    by_name: HashMap<Arc<str>, StoreLines>,
    /// After the end: the kinds that have had their line since.
    written_after_end: Option<HashSet<(Arc<str>, Kind)>>,
}

/// Which lines count together: those of one event, with one cause or one kind of error. Only compared, never shown.
pub(crate) type Kind = (&'static str, &'static str);

/// Writes a line, with the number of lines of its kind that were left out.
pub(crate) type Write = Box<dyn FnOnce(u64) + Send>;

struct StoreLines {
    free_at: BootInstant,
    /// The first one of each kind. So their number is bounded.
    waiting: VecDeque<Waiting>,
    /// Whether a task will call [`LineLimit::next`].
    has_task: bool,
}

struct Waiting {
    kind: Kind,
    write: Write,
    left_out: u64,
}

/// Whether a line was written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Written,
    /// It is written or counted later. If no task calls [`LineLimit::next`], the caller starts one, which begins at this time.
    Later {
        ask_at: Option<BootInstant>,
    },
}

impl LineLimit {
    /// Writes the line if none of this store was written for a second. Else it waits, unless one of its kind waits already.
    pub(crate) fn line(&self, store: &Arc<str>, kind: Kind, now: BootInstant, write: Write) -> Put {
        let mut stores = self.stores();
        if let Some(written) = &mut stores.written_after_end {
            let is_first = written.insert((store.clone(), kind));
            drop(stores);
            if is_first {
                write(0);
                return Put::Written;
            }
            return Put::Later { ask_at: None };
        }
        let no_line = || StoreLines { free_at: now, waiting: VecDeque::new(), has_task: false };
        let lines = stores.by_name.entry(store.clone()).or_insert_with(no_line);
        let is_free = now >= lines.free_at;
        if is_free && lines.waiting.is_empty() {
            lines.free_at = now.after(LINE_INTERVAL);
            drop(stores);
            write(0);
            return Put::Written;
        }
        // The task is late, or there is none, as in a child after `fork`.
        let overdue = if is_free { lines.pop(now) } else { None };
        match lines.waiting.iter_mut().find(|waiting| waiting.kind == kind) {
            Some(same) => same.left_out += 1,
            None => lines.waiting.push_back(Waiting { kind, write, left_out: 0 }),
        }
        let has_task = std::mem::replace(&mut lines.has_task, true);
        let ask_at = (!has_task).then_some(lines.free_at);
        drop(stores);
        overdue.into_iter().for_each(Waiting::write);
        Put::Later { ask_at }
    }

    /// Writes the first line that waits, if it is time. Returns when to ask again, if others wait.
    pub(crate) fn next(&self, store: &str, now: BootInstant) -> Option<BootInstant> {
        let mut stores = self.stores();
        let lines = stores.by_name.get_mut(store)?;
        let due = if now >= lines.free_at { lines.pop(now) } else { None };
        lines.has_task = !lines.waiting.is_empty();
        let again = lines.has_task.then_some(lines.free_at);
        drop(stores);
        due.into_iter().for_each(Waiting::write);
        again
    }

    /// Writes all lines that wait, at a shutdown. Afterwards only the first line of each kind is written.
    pub(crate) fn end(&self) {
        let mut stores = self.stores();
        stores.written_after_end.get_or_insert_default();
        let by_name = std::mem::take(&mut stores.by_name);
        drop(stores);
        by_name.into_values().flat_map(|lines| lines.waiting).for_each(Waiting::write);
    }

    fn stores(&self) -> MutexGuard<'_, Stores> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreLines {
    fn pop(&mut self, now: BootInstant) -> Option<Waiting> {
        let due = self.waiting.pop_front()?;
        self.free_at = now.after(LINE_INTERVAL);
        Some(due)
    }
}

impl Waiting {
    fn write(self) {
        (self.write)(self.left_out);
    }
}

#[cfg(test)]
mod tests {
    use dlock_store::Clock;

    use super::*;

    type Written = Arc<Mutex<Vec<(&'static str, u64)>>>;

    const LOST: Kind = ("lost", "deadline");
    const BROKEN: Kind = ("lost", "broken");
    const NEAR: Kind = ("near expiry", "near");
    const COUNTED: Put = Put::Later { ask_at: None };

    fn put(limit: &LineLimit, written: &Written, (store, kind): (&str, Kind), now: BootInstant) -> Put {
        let written = written.clone();
        let write = move |left_out| written.lock().unwrap().push((kind.1, left_out));
        limit.line(&store.into(), kind, now, Box::new(write))
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
        assert_eq!(put(&limit, &written, ("one", NEAR), clock.now()), Put::Later { ask_at: Some(ask_at) });
        for kind in [LOST, NEAR, LOST, BROKEN, LOST] {
            assert_eq!(put(&limit, &written, ("one", kind), clock.now()), COUNTED, "somebody asks already");
        }
        assert_eq!(limit.next("one", clock.now()), Some(ask_at), "it is too early");
        assert!(taken(&written).is_empty());
        for expected in [("near", 1), ("deadline", 2), ("broken", 0)] {
            clock.advance(LINE_INTERVAL);
            let again = limit.next("one", clock.now());
            assert_eq!((taken(&written), again.is_none()), (vec![expected], expected.0 == "broken"));
        }
        // The last line counts too.
        assert!(matches!(put(&limit, &written, ("one", LOST), clock.now()), Put::Later { ask_at: Some(_) }));
    }

    #[test]
    fn a_line_that_nobody_asks_for_comes_with_the_next_one() {
        let (limit, clock, written) = (LineLimit::default(), Clock::manual(), Written::default());
        for kind in [LOST, NEAR, BROKEN] {
            put(&limit, &written, ("one", kind), clock.now());
        }
        assert_eq!(taken(&written), [("deadline", 0)]);
        for expected in [("near", 0), ("broken", 0), ("deadline", 1)] {
            clock.advance(LINE_INTERVAL);
            put(&limit, &written, ("one", LOST), clock.now());
            assert_eq!(taken(&written), [expected]);
        }
    }

    #[test]
    fn at_the_end_all_lines_are_written_and_later_one_of_each_kind() {
        let (limit, clock, written) = (LineLimit::default(), Clock::manual(), Written::default());
        for kind in [LOST, LOST, LOST, NEAR] {
            put(&limit, &written, ("one", kind), clock.now());
        }
        taken(&written);
        limit.end();
        assert_eq!(taken(&written), [("deadline", 1), ("near", 0)]);
        for kind in [LOST, LOST, NEAR] {
            put(&limit, &written, ("one", kind), clock.now());
        }
        assert_eq!(taken(&written), [("deadline", 0), ("near", 0)]);
        clock.advance(LINE_INTERVAL);
        assert_eq!((limit.next("one", clock.now()), taken(&written).len()), (None, 0));
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
