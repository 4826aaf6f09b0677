//! The log lines of dlock. A line runs user code, the layers of `tracing` or a logger, which may block or panic.
//!
//! On a caller's thread a line is written at once. Lines of our own thread are written by a thread of their own, so that a
//! layer that blocks delays lines and no renewal. No panic of a layer comes out of here: it costs one line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dlock_contract::engine::caught;

use crate::thread::background::{aside, is_ours};

/// The most lines that wait for slow layers. Further ones are dropped and counted.
const MOST_WAITING: usize = 1024;

type Line = Box<dyn FnOnce() + Send>;

/// The way to the thread of the lines; `None` if the machine gave no thread.
static LINES: OnceLock<Option<SyncSender<Line>>> = OnceLock::new();

/// The number of lines that were left out since the last written line.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes a log line: `write` calls a macro of `tracing`.
///
/// ```
/// let host = "10.0.0.7:6379".to_owned();
/// dlock_store::line(move || tracing::warn!(target: "dlock", host, "the server evicts keys"));
/// ```
pub fn line(write: impl FnOnce() + Send + 'static) {
    if !is_ours() {
        caught(write);
        return;
    }
    let sender = LINES.get_or_init(|| {
        let (sender, receiver) = sync_channel(MOST_WAITING);
        aside("dlock-log", move || write_all(&receiver)).ok().map(|()| sender)
    });
    let sent = sender.as_ref().is_some_and(|sender| sender.try_send(Box::new(write)).is_ok());
    if !sent {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets one of many equal lines pass in each minute: what concerns every waiter must not fill the log.
///
/// ```
/// static TOLD: dlock_store::Seldom = dlock_store::Seldom::new();
/// let (host, reason) = ("10.0.0.7:6379", "NOPERM");
/// TOLD.line(reason, move || tracing::warn!(target: "dlock", host, reason, "waiters poll"));
/// ```
#[derive(Debug)]
pub struct Seldom(Mutex<BTreeMap<String, Instant>>);

/// The time between two equal lines.
const SELDOM: Duration = Duration::from_secs(60);

/// The most lines that are remembered.
const MOST_REMEMBERED: usize = 64;

impl Seldom {
    /// The next line passes.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is a static beside its line")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Writes the line, if none that is equal in `what` has passed for a minute. See [`line()`].
    pub fn line(&self, what: impl ToString, write: impl FnOnce() + Send + 'static) {
        if self.passes(what) {
            line(write);
        }
    }

    /// Whether a line that is equal in `what` may be written now. It is taken for written then.
    #[must_use]
    pub fn passes(&self, what: impl ToString) -> bool {
        self.pass_at(what.to_string(), Instant::now())
    }

    fn pass_at(&self, what: String, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, last| now.duration_since(*last) < SELDOM);
        let passes = last.len() < MOST_REMEMBERED && !last.contains_key(&what);
        if passes {
            last.insert(what, now);
        }
        passes
    }
}

fn write_all(lines: &Receiver<Line>) {
    for write in lines {
        caught(write);
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            caught(
                || tracing::warn!(target: "dlock", left_out, "the log was so slow that lines of dlock were left out"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::own_thread::background;

    const HANG: Duration = Duration::from_secs(20);

    /// Lets one test run at a time, because all tests share the one thread for lines and its queue.
    static ONE_TEST: Mutex<()> = Mutex::new(());

    /// Writes lines on our thread, and waits until that thread has gone on.
    fn write_on_our_thread(lines: impl IntoIterator<Item: FnOnce() + Send + 'static> + Send + 'static) {
        let (done, is_done) = channel();
        background().unwrap().spawn(async move {
            lines.into_iter().for_each(line);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(HANG).expect("a line blocks our thread");
    }

    #[test]
    fn a_line_that_blocks_delays_only_lines_and_what_does_not_fit_is_counted() {
        let _alone = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        let ((go, blocked), (begin, begun)) = (channel::<()>(), channel());
        write_on_our_thread([move || {
            begin.send(()).unwrap();
            assert!(blocked.recv().is_err());
        }]);
        // The thread has reset the count of an earlier test by now.
        begun.recv_timeout(HANG).unwrap();
        let (tell, told) = channel();
        let tells = (0..3 * MOST_WAITING).map(move |number| {
            let tell = tell.clone();
            move || tell.send(number).unwrap()
        });
        write_on_our_thread(tells);
        assert!(LEFT_OUT.load(Ordering::Relaxed) >= MOST_WAITING as u64);
        drop(go);
        let written: Vec<_> = std::iter::from_fn(|| told.recv_timeout(HANG).ok()).collect();
        assert!((1..=MOST_WAITING + 1).contains(&written.len()) && written.is_sorted(), "{written:?}");
    }

    #[test]
    fn a_line_that_panics_ends_nothing() {
        let _alone = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        line(|| panic!("on a caller's thread"));
        write_on_our_thread([|| panic!("on the thread of the lines")]);
        let (tell, told) = channel();
        write_on_our_thread([move || tell.send(std::thread::current().name().map(str::to_owned)).unwrap()]);
        assert_eq!(told.recv_timeout(HANG).unwrap().as_deref(), Some("dlock-log"));
    }

    #[test]
    fn of_equal_lines_one_passes_in_a_minute() {
        let (told, now) = (Seldom::new(), Instant::now());
        let passed = |what: &str, at: Duration| (0..50).filter(|_| told.pass_at(what.into(), now + at)).count();
        assert_eq!((passed("one", Duration::ZERO), passed("two", Duration::ZERO)), (1, 1));
        assert_eq!((passed("one", SELDOM / 2), passed("one", SELDOM)), (0, 1));
        assert!((0..1000).filter(|number: &u32| told.pass_at(number.to_string(), now + SELDOM)).count() < 100);
    }
}
