//! Tests of the wakers of a hold: which ones are woken, and when.

use std::sync::atomic::AtomicBool;
use std::task::{Context, Wake};

use futures::FutureExt;
use futures::executor::block_on;

use super::*;
use crate::options::{Cohort, Wait};
use crate::{Guard, Registry};
use dlock_memory::Memory;
use dlock_store::Clock;

/// The next caller's, which looks at the hold of this one.
struct Looks {
    tenure: Arc<Tenure>,
    found_it_free: AtomicBool,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.found_it_free.store(self.tenure.neighbours.try_lock().is_ok(), Ordering::SeqCst);
    }
}

/// A waker may do anything, so it may also lock this mutex again.
#[test]
fn the_next_caller_is_woken_outside_of_the_mutex() {
    let wait = Wait::UpTo(Duration::from_secs(60));
    let cohort = Some(Cohort { passes: 8, span: None });
    let shares = |guard: Guard| assert!(guard.0.share_turn());
    let passes_on = |guard: Guard| block_on(guard.release()).unwrap();
    let cases: [(fn(Guard), bool); 2] = [(shares, true), (passes_on, false)];
    for (calls, fair) in cases {
        let registry = Registry::new();
        registry.install("memory", Memory::new()).unwrap();
        let lock = || registry.lock("k").backend("memory").wait(wait);
        let guard = block_on(lock().cohort(cohort).acquire()).unwrap();
        let looks = Arc::new(Looks { tenure: guard.0.clone(), found_it_free: AtomicBool::new(false) });
        // For a caller without `fair` the release would ask.
        let next = if fair { lock().fair(true) } else { lock().cohort(cohort) };
        let mut next = Box::pin(next.acquire());
        assert!(next.poll_unpin(&mut Context::from_waker(&looks.clone().into())).is_pending());
        calls(guard);
        assert!(looks.found_it_free.load(Ordering::SeqCst));
    }
}

#[test]
fn an_answer_that_is_older_than_the_last_one_changes_neither_the_end_nor_the_length_of_the_lease() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let tenure = &guard.0;
    let before = tenure.validity();
    tenure.prolong(Validity::new(clock.now(), before.granted / 2));
    assert_eq!(tenure.validity(), before);
    clock.advance(before.granted / 4);
    let next = Validity::new(clock.now(), before.granted / 8 * 7);
    tenure.prolong(next);
    assert_eq!(tenure.validity(), next);
}
