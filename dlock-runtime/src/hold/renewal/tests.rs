//! A renewal and a release at the same time.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use futures::executor::block_on;

use super::*;
use crate::hold::tenure::{RenewalSchedule, SessionWatch};
use crate::{Guard, Registry};
use dlock_memory::Memory;

/// Without this, a releaser would not know that a renewal is under way, and pass the hold on without asking the store.
#[test]
fn a_hold_that_ends_meanwhile_is_not_renewed() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let (tenure, schedule) = (&guard.0, &registry.context().shared().renewals);
    let due = clock.now();
    thread::scope(|scope| {
        let mut duties = tenure.duties();
        duties.next_renewal = due;
        let (to, begins) = mpsc::channel();
        scope.spawn(move || {
            to.send(()).unwrap();
            schedule.attend(vec![tenure.clone()]);
        });
        begins.recv().unwrap();
        // Enough time for the renewal to go as far as it can; a shorter time would only hide the fault.
        thread::sleep(Duration::from_millis(100));
        assert!(tenure.end());
    });
    // A renewal is under way, or the schedule has the time of the next one.
    let duties = tenure.duties();
    assert!(duties.renewals == 0 && duties.next_renewal == due);
}

/// Otherwise the schedule could put it back in between.
#[test]
fn a_hold_ends_before_it_leaves_the_schedule() {
    for release in [drop, |guard: Guard| block_on(guard.release()).unwrap()] {
        let clock = Clock::manual();
        let registry = Registry::with_clock(&clock);
        registry.install("memory", Memory::with_clock(&clock)).unwrap();
        let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
        let tenure = guard.0.clone();
        thread::scope(|scope| {
            // Keeps it in the schedule.
            let _duties = tenure.duties();
            scope.spawn(move || release(guard));
            let begin = Instant::now();
            while tenure.is_held() {
                assert!(begin.elapsed() < Duration::from_secs(30), "it leaves the schedule first");
                thread::yield_now();
            }
        });
    }
}

/// Without this, a released hold would stay in memory until its next renewal would be due, which is long for long ttls.
#[test]
fn a_hold_that_was_released_is_forgotten_at_once() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let schedule = &registry.context().shared().renewals;
    for _ in 0..3 {
        let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
        block_on(guard.release()).unwrap();
    }
    assert!(schedule.lock().due.is_empty());
}

/// Between the moment in which the schedule takes it out and the one in which it puts it back.
#[test]
fn a_hold_that_is_attended_to_is_still_listed() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    // No task attends to this one.
    let schedule = RenewalSchedule::new(&clock);
    guard.0.duties().next_renewal = clock.now();
    schedule.put(&guard.0);
    assert_eq!(schedule.take_due().0.len(), 1);
    assert_eq!(schedule.holds().len(), 1);
}

/// A hint that its session has ended may come as soon as it is among the holds of that session.
#[test]
fn a_hold_that_is_lost_before_it_knows_its_watch_leaves_it() {
    let registry = Registry::new();
    registry.install("memory", Memory::new()).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let watch = SessionWatch::of(&guard.0);
    assert!(guard.0.lose(dlock_contract::LossCause::Store));
    guard.0.note_watch(watch.clone());
    assert!(watch.holds().is_empty());
}

/// The answer to a renewal may come after the end.
#[test]
fn a_hold_that_has_ended_is_not_put_back_into_the_schedule() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let tenure = guard.0.clone();
    block_on(guard.release()).unwrap();
    let schedule = &registry.context().shared().renewals;
    apply(&clock, &tenure, Ok(Validity::new(clock.now(), Duration::from_secs(30))));
    assert!(schedule.lock().due.is_empty());
}

/// The hold may end before the task that listens is there.
#[test]
fn a_watch_without_holds_keeps_no_task() {
    let registry = Registry::new();
    registry.install("memory", Memory::new()).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let watch = SessionWatch::of(&guard.0);
    watch.forget(&guard.0);
    let (lives, ended) = mpsc::channel::<()>();
    watch.run(background().unwrap().run(async move {
        let _lives = lives;
        std::future::pending().await
    }));
    ended.recv().unwrap_err();
}

/// Such a store works, and its breaker would keep new calls from it.
#[test]
fn a_store_that_renews_one_hold_of_a_batch_has_answered() {
    let clock = Clock::manual();
    let registry = Registry::with_clock(&clock);
    registry.install("memory", Memory::with_clock(&clock)).unwrap();
    let guard = block_on(registry.lock("k").backend("memory").acquire()).unwrap();
    let tenure = &guard.0;
    let failed = || Err(Error::outage("it did not answer"));
    let note = |answers: &[Result<Standing>]| {
        // Before the first renewal of this hold, which succeeds.
        for _ in 0..10 {
            clock.advance(Duration::from_millis(250));
            note_health(tenure, answers);
        }
        tenure.store.breaker.holds_back_until().is_some()
    };
    assert!(!note(&[failed(), Ok(Standing::Renewed(tenure.validity())), failed()]));
    assert!(note(&[failed(), failed(), failed()]));
}
