//! The renewal schedule: holds that come, go and are renewed while the task that attends to them runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{Claim, Hold, Key, LockKey, Validity};
use dlock_store::Clock;
use shuttle::future::block_on;
use shuttle::thread;

use crate::hold::tenure::{Events, LONG, RenewalSchedule, Shared, Tenure};
use crate::models::{holds_and_finds, join_all};
use crate::sync::{forget_tasks, join_tasks};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct World {
    clock: Clock,
    shared: Arc<Shared>,
}

impl World {
    fn new() -> Self {
        forget_tasks();
        let clock = Clock::manual();
        let renewals = Arc::new(RenewalSchedule::new(&clock));
        Self { shared: Arc::new(Shared { clock: clock.clone(), renewals, events: Events }), clock }
    }

    /// A hold whose first renewal is due after this time.
    fn hold(&self, first_renewal: Duration) -> Arc<Tenure> {
        let now = self.clock.now();
        let key = LockKey::new("test", Key::text("k")).unwrap();
        let claim = Arc::new(Claim::new(key, LONG, "site").unwrap());
        let hold = Hold::new(claim, 1, Validity::new(now, LONG)).unwrap();
        let hold = Arc::new(Tenure::new(hold, self.shared.clone(), now.after(first_renewal)));
        self.shared.renewals.add(&hold).unwrap();
        hold
    }

    /// Lets a second pass, on a thread of its own.
    fn ticks(&self) -> thread::JoinHandle<()> {
        let clock = self.clock.clone();
        thread::spawn(move || clock.advance(SECOND))
    }

    fn ends(&self) {
        self.shared.renewals.stopped.store(true, Ordering::Release);
        self.shared.renewals.earlier.notify_one();
        join_tasks();
        assert!(!self.shared.renewals.dead.load(Ordering::Acquire));
    }
}

#[test]
fn a_hold_that_was_released_never_comes_back() {
    holds_and_finds("a duty is decided before the schedule is locked", || {
        let world = World::new();
        let hold = world.hold(SECOND);
        let ending = hold.clone();
        let ends = thread::spawn(move || {
            // About as many steps as the schedule needs to come to this hold.
            (0..12).for_each(|_| thread::yield_now());
            assert!(ending.state.end());
            ending.shared.renewals.remove(&ending);
        });
        join_all(vec![world.ticks(), ends]);
        world.ends();
        assert_eq!(Arc::strong_count(&hold), 1, "the schedule keeps a hold that has ended");
    });
}

#[test]
fn a_held_lock_is_listed_in_every_moment() {
    holds_and_finds("a hold that is attended to is in no list", || {
        let world = World::new();
        let _hold = world.hold(SECOND);
        let looking = world.clone();
        let looks = thread::spawn(move || {
            for _ in 0..4 {
                assert_eq!(looking.shared.renewals.holds().len(), 1);
                thread::yield_now();
            }
        });
        join_all(vec![world.ticks(), looks]);
        world.ends();
    });
}

/// A wake-up that gets lost is a thread that waits for ever.
#[test]
fn a_duty_that_is_earlier_ends_the_sleep() {
    holds_and_finds("the sleep is noted after the look", || {
        let world = World::new();
        // The sleep that is noted too late is earlier than the duty that is added. One without an end would hide the fault.
        let (_far, _near) = (world.hold(10 * SECOND), world.hold(SECOND));
        let adding = world.clone();
        let adds = thread::spawn(move || adding.hold(5 * SECOND));
        world.clock.advance(SECOND);
        let added = adds.join().unwrap();
        world.clock.advance(5 * SECOND);
        block_on(added.renewed.notified());
        world.ends();
    });
}

#[test]
fn no_renewal_leaves_after_the_look_of_a_release() {
    holds_and_finds("a renewal begins after the look of a release", || {
        let world = World::new();
        let hold = world.hold(SECOND);
        let releases = thread::spawn(move || {
            (0..12).for_each(|_| thread::yield_now());
            assert!(hold.state.end());
            if !hold.is_renewing() {
                hold.passed_on.store(true, Ordering::SeqCst);
            }
            hold.shared.renewals.remove(&hold);
        });
        join_all(vec![world.ticks(), releases]);
        world.ends();
    });
}
