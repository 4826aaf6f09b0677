//! Callers that were not polled, later: what they have left, and what they do when they are polled again.

use std::task::Poll;

use dlock_runtime::{Backoff, Clock, Mode, Retry, Wait};

use crate::acquire::stranger;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, is_free, poll_once, test};
use crate::unpolled::{goes_on, polled_once};

/// What it has left is abandoned, and that abandon arrives after its next grant.
#[test]
fn a_late_abandon_of_a_caller_that_was_not_polled_ends_no_later_grant() {
    for mode in [Mode::Exclusive, Mode::Read] {
        test(async move {
            let world = World::new();
            world.store.next(Op::Acquire, [Step::Late(SECOND)]);
            world.store.next(Op::Abandon, [Step::Stall]);
            let lock = || world.lock("k").mode(mode).wait(LONG);
            let mut unpolled = polled_once(lock());
            let next = world.pass_until(100 * MS, lock().acquire()).await.unwrap();
            next.release().await.unwrap();
            let won = poll_once(&mut unpolled);
            world.store.deliver().await;
            let late = match won {
                Poll::Ready(won) => won.unwrap(),
                Poll::Pending => world.pass_until(100 * MS, unpolled).await.unwrap(),
            };
            late.confirm().await.unwrap();
            late.release().await.unwrap();
            world.empty().await;
        });
    }
}

/// It has not asked again, so there is nothing of it in the store.
#[test]
fn a_caller_that_was_passed_over_and_gives_up_abandons_nothing_more() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let mut unpolled = polled_once(world.lock("k").wait(LONG));
        let guard = world.pass_until(100 * MS, world.lock("k").wait(LONG).acquire()).await.unwrap();
        assert!(poll_once(&mut unpolled).is_pending());
        calm().await;
        let abandoned = world.store.calls(Op::Abandon);
        drop(unpolled);
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), abandoned);
        guard.release().await.unwrap();
        world.empty().await;
    });
}

/// The claim of its last request is abandoned, and not that of an earlier one.
#[test]
fn a_caller_that_has_asked_under_a_second_owner_id_loses_that_grant() {
    for leak in [false, true] {
        test(async move {
            let world = World::new();
            world.store.next(Op::Acquire, [Step::GrantsAfter(SECOND), Step::Late(SECOND)]);
            world.store.next(Op::Abandon, [Step::Fail]);
            let mut unpolled = polled_once(world.lock("k").wait(LONG));
            while world.store.calls(Op::Acquire) < 2 {
                world.clock.advance(10 * MS);
                assert!(poll_once(&mut unpolled).is_pending());
            }
            goes_on(&world, unpolled, leak).await;
        });
    }
}

/// The store may grant no lock for a while, and none is asked for meanwhile.
#[test]
fn callers_that_are_not_polled_are_found_also_after_a_while_without_any() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        for _ in 0..2 {
            world.store.next(Op::Acquire, [Step::Late(SECOND)]);
            std::mem::forget(polled_once(world.lock("k").wait(LONG)));
            world.pass(20 * SECOND).await;
            assert!(is_free(&stranger(&world), "k").await);
            world.pass(20 * SECOND).await;
        }
    });
}

/// A pause as long as the caller wants, after a failure or a signal that fails.
#[test]
fn a_caller_that_pauses_long_before_it_asks_again_keeps_its_turn() {
    for step in [Step::Fail, Step::BrokenSignal] {
        test(async move {
            let world = World::new();
            world.store.always(Op::Acquire, step);
            let pauses = Backoff::new(3600 * SECOND, 3600 * SECOND);
            let slow = || {
                let retry = Retry { times: 1000, backoff: Some(pauses) };
                tokio::spawn(world.lock("k").wait(Wait::Forever).retry(retry).backoff(pauses).acquire())
            };
            let callers = [slow(), slow()];
            world.pass(60 * SECOND).await;
            assert_eq!(world.store.calls(Op::Abandon), 0, "{step:?}");
            callers.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }
}
