//! A store that says after which time it grants locks again, as one does after its start.

use dlock_runtime::{ErrorKind, Wait};
use futures::FutureExt;

use crate::acquire::polled;
use crate::cohort::member;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, poll_once, test};

/// However often it says so: that is no failure, and it counts as an attempt.
#[test]
fn a_caller_asks_again_when_the_store_has_said_that_it_grants() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::GrantsAfter(SECOND));
        let waiting = tokio::spawn(world.lock("k").wait(LONG).acquire());
        world.pass(20 * SECOND).await;
        assert!(!waiting.is_finished());
        // One failure is none too many.
        world.store.next(Op::Acquire, [Step::Fail]);
        world.store.always(Op::Acquire, Step::Pass);
        world.pass_until(100 * MS, waiting).await.unwrap().unwrap().release().await.unwrap();
        world.store.always(Op::Acquire, Step::GrantsAfter(SECOND));
        let asked = world.lock("k").wait(LONG).attempts(3).acquire();
        let error = world.pass_until(100 * MS, asked).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 3));
        world.store.always(Op::Acquire, Step::Pass);
        world.empty().await;
    });
}

#[test]
fn a_wait_that_ends_before_that_time_ends_at_once() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::GrantsAfter(5 * SECOND));
        let asked = world.lock("k").wait(Wait::UpTo(SECOND)).acquire();
        let error = asked.now_or_never().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.told_after()), (&ErrorKind::Outage, Some(5 * SECOND)));
    });
}

/// Nobody holds the lock, so they hear what the store says, and at once.
#[test]
fn its_neighbours_ask_the_store_meanwhile() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::GrantsAfter(5 * SECOND));
        let waiting = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (1, 1));
        let error = world.lock("k").try_acquire().now_or_never().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 1));
        world.store.always(Op::Acquire, Step::Pass);
        world.pass_until(100 * MS, waiting).await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

/// They would meet what it has left in the store.
#[test]
fn its_neighbours_wait_while_something_of_it_may_be_in_the_store() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::GrantsAfter(60 * SECOND)]);
        world.store.next(Op::Abandon, [Step::Fail]);
        let waiting = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
        // Longer than a caller may keep its turn without acting.
        world.pass(30 * SECOND).await;
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (1, 1));
        for next in [waiting, behind] {
            world.pass_until(SECOND, next).await.unwrap().unwrap().release().await.unwrap();
        }
        world.empty().await;
    });
}

/// Its first request was abandoned, and that abandon arrives after the grant.
#[test]
fn an_abandon_that_arrives_late_ends_no_later_grant() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::GrantsAfter(5 * SECOND), Step::NeverSent]);
        world.store.next(Op::Abandon, [Step::Stall]);
        let guard = world.pass_until(100 * MS, world.lock("k").wait(LONG).acquire()).await.unwrap();
        world.store.deliver().await;
        guard.confirm().await.unwrap();
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), 2, "once in place, and once more on our thread");
        guard.release().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_holder_that_it_meets_after_that_is_contention_for_its_neighbours() {
    test(async {
        let (world, stranger) = polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        world.store.next(Op::Acquire, [Step::Pass, Step::GrantsAfter(SECOND)]);
        let mut waiting = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(poll_once(&mut waiting).is_pending());
        let waiting = tokio::spawn(waiting);
        while world.store.calls(Op::Acquire) < 3 {
            world.clock.advance(10 * MS);
            calm().await;
        }
        let error = world.lock("k").try_acquire().now_or_never().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Busy, 0));
        held.release().await.unwrap();
        world.pass_until(100 * MS, waiting).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// It was passed on by a neighbour that came in between, and noticed too late.
#[test]
fn a_hold_that_comes_too_late_with_the_next_turn_is_abandoned() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::GrantsAfter(SECOND)]);
        let mut waiting = Box::pin(member(&world).acquire());
        assert!(poll_once(&mut waiting).is_pending());
        let first = member(&world).acquire().await.unwrap();
        world.clock.advance(2 * SECOND);
        assert!(poll_once(&mut waiting).is_pending());
        first.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Reserve), 1, "it was passed on");
        world.clock.advance(29 * SECOND + 800 * MS);
        let guard = waiting.await.unwrap();
        guard.confirm().await.unwrap();
        guard.release().await.unwrap();
        world.empty().await;
    });
}
