//! Locks that our thread gives back later: when it asks the store, and until when.

use dlock_contract::WakeStyle;
use dlock_runtime::Clock;

use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, full, held_and_awaited, test, until};

/// Another release that hangs, or that is tried again later, is no reason to wait.
#[test]
fn a_lock_is_given_back_at_once_beside_others_that_cannot_be() {
    for step in [Step::Hang, Step::Fail] {
        test(async move {
            let world = World::new();
            let (one, other) =
                (world.lock("one").acquire().await.unwrap(), world.lock("other").acquire().await.unwrap());
            world.store.next(Op::Release, [step]);
            drop(one);
            until("the first is tried", || world.store.calls(Op::Release) == 1).await;
            calm().await;
            drop(other);
            until("the other is released", || world.store.calls(Op::Release) == 2).await;
        });
    }
}

#[test]
fn a_release_that_keeps_failing_is_tried_less_and_less_often() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Release, Step::Fail);
        drop(guard);
        for _ in 0..600 {
            world.clock.advance(100 * MS);
            calm().await;
        }
        // Some thirty: the pauses grow to five seconds.
        let tries = world.store.calls(Op::Release);
        assert!((10..45).contains(&tries), "{tries}");
        world.store.always(Op::Release, Step::Pass);
        world.pass(10 * SECOND).await;
        assert!(world.memory.is_empty());
    });
}

#[test]
fn many_releases_ask_a_store_that_keeps_failing_about_once_a_second() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let mut guards = Vec::new();
        for number in 0..50 {
            guards.push(world.lock(format!("k{number}").leak()).acquire().await.unwrap());
        }
        world.store.always(Op::Release, Step::Fail);
        drop(guards);
        let pass = async |steps| {
            for _ in 0..steps {
                world.clock.advance(100 * MS);
                calm().await;
            }
            world.store.calls(Op::Release)
        };
        let before = pass(100).await;
        // The pause between two probes is half a second to one and a half.
        let tries = pass(600).await - before;
        assert!((35..=125).contains(&tries), "{tries} in a minute");
        world.store.always(Op::Release, Step::Pass);
        pass(200).await;
        assert!(world.memory.is_empty());
        // One that comes now is tried at once.
        let tries = world.store.calls(Op::Release);
        drop(world.lock("k").acquire().await.unwrap());
        until("it is released", || world.store.calls(Op::Release) == tries + 1).await;
    });
}

#[test]
fn nothing_is_tried_again_after_a_shutdown() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        world.store.always(Op::Release, Step::Fail);
        drop(world.lock("k").acquire().await.unwrap());
        let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
        assert_eq!(report.unconfirmed, 1);
        // One may be on its way.
        world.pass(10 * SECOND).await;
        let tries = world.store.calls(Op::Release);
        world.pass(60 * SECOND).await;
        assert_eq!(world.store.calls(Op::Release), tries);
    });
}

/// The store would keep the lock, so it is released, and the next caller of this process waits for that.
#[test]
fn the_turn_of_a_lost_hold_waits_for_its_release_where_the_store_would_keep_the_lock() {
    test(async {
        let world = World::with(&Clock::manual(), |store| {
            store.expires_alone = false;
            store.wake = WakeStyle::Poll { from: 100 * MS, to: SECOND };
        });
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        world.memory.forget(&full("k"));
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        held.confirm().await.unwrap_err();
        world.pass(500 * MS).await;
        assert_eq!((world.store.calls(Op::Release), world.store.calls(Op::Acquire)), (1, 1));
        world.pass_until(100 * MS, next).await.unwrap().unwrap().release().await.unwrap();
    });
}
