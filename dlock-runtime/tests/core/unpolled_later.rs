//! Callers that were not polled, later: what they have left, and what they do when they are polled again.

use std::task::Poll;

use dlock_runtime::{Backoff, Clock, ErrorKind, Mode, Retry, Wait};
use futures::FutureExt;

use crate::acquire::{neighbours, polled, stranger};
use crate::cohort::member;
use crate::periods::{self, once};
use crate::support::{
    LONG, MS, Op, SECOND, Step, World, calm, freed, held_and_awaited, is_free, poll_once, test, until,
};
use crate::unpolled::{LONGEST, goes_on, polled_once};

/// Its leftovers are abandoned, and that abandon arrives after its next grant.
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
        let (world, stranger) = polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        let mut unpolled = polled_once(world.lock("k").wait(LONG));
        let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
        world.pass(LONGEST).await;
        assert_eq!(world.store.calls(Op::Abandon), 1, "it has lost its turn");
        assert!(poll_once(&mut unpolled).is_pending());
        calm().await;
        let abandoned = world.store.calls(Op::Abandon);
        drop(unpolled);
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), abandoned);
        held.release().await.unwrap();
        world.pass_until(100 * MS, next).await.unwrap().unwrap().release().await.unwrap();
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
            freed(&stranger(&world), "k").await;
            world.pass(20 * SECOND).await;
        }
    });
}

/// Its next caller waits for the abandon of its leftovers. Nobody holds the lock.
#[test]
fn the_leftovers_of_a_caller_that_is_not_polled_are_no_contention() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        world.store.next(Op::Abandon, [Step::Late(SECOND)]);
        let unpolled = polled_once(world.lock("k").wait(LONG));
        let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
        while world.store.calls(Op::Abandon) < 1 {
            world.pass(100 * MS).await;
        }
        assert!(poll_once(&mut Box::pin(world.lock("k").try_acquire())).is_pending());
        world.pass_until(100 * MS, behind).await.unwrap().unwrap().release().await.unwrap();
        drop(unpolled);
        world.empty().await;
    });
}

/// Also a caller in the store's queue, which has no turn, and gets its grant from there.
#[test]
fn a_grant_from_the_stores_queue_that_nobody_takes_ends_where_leases_do_not_end_alone() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let foreign = stranger(&world).lock("k").acquire().await.unwrap();
        let mut unpolled = polled_once(world.lock("k").wait(LONG).fair(true));
        calm().await;
        assert!(poll_once(&mut unpolled).is_pending());
        std::mem::forget(unpolled);
        foreign.release().await.unwrap();
        assert!(!is_free(&stranger(&world), "k").await, "it was granted");
        world.pass(20 * SECOND).await;
        freed(&stranger(&world), "k").await;
    });
}

/// No attempt of its own has begun to look for it: a neighbour's release has asked for it. The simulation found it.
#[test]
fn a_grant_by_a_neighbours_release_that_nobody_takes_ends_where_leases_do_not_end_alone() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let held = world.lock("k").acquire().await.unwrap();
        std::mem::forget(polled_once(world.lock("k").wait(LONG)));
        world.pass(20 * SECOND).await;
        held.release().await.unwrap();
        assert!(!is_free(&stranger(&world), "k").await, "it was granted");
        world.pass(20 * SECOND).await;
        freed(&stranger(&world), "k").await;
    });
}

/// Its place in the store's queue was taken, and its grant given back, before it was polled again. The simulation found it.
#[test]
fn a_fair_reader_that_has_lost_its_place_does_not_take_its_grant() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
        let writer = |world: &World| world.lock("k").mode(Mode::Write);
        let foreign = writer(&stranger(&world)).acquire().await.unwrap();
        let mut unpolled = polled_once(world.lock("k").mode(Mode::Read).wait(LONG).fair(true));
        calm().await;
        assert!(poll_once(&mut unpolled).is_pending());
        foreign.release().await.unwrap();
        world.pass(20 * SECOND).await;
        let guard = world.pass_until(100 * MS, unpolled).await.unwrap();
        guard.check().unwrap();
        assert!(writer(&stranger(&world)).try_acquire().await.is_err(), "the reader has the lock");
    });
}

/// The keys of a call that waits in the store's queue for a further one.
#[test]
fn a_call_for_several_fair_locks_that_is_not_polled_gives_back_those_that_it_has() {
    test(async {
        let world = World::new();
        let foreign = stranger(&world).lock("k").acquire().await.unwrap();
        let mut unpolled = Box::pin(world.registry.lock_all(["j", "k"]).fair(true).wait(LONG).acquire());
        for _ in 0..9 {
            assert!(poll_once(&mut unpolled).is_pending());
            calm().await;
        }
        assert!(!is_free(&stranger(&world), "j").await);
        let next = tokio::spawn(world.lock("k").fair(true).wait(LONG).acquire());
        world.pass(20 * SECOND).await;
        freed(&stranger(&world), "j").await;
        foreign.release().await.unwrap();
        world.pass_until(100 * MS, next).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Its bound began when it was called, and it has noticed that in time. Its request has a time of its own.
#[test]
fn a_caller_that_notices_its_turn_in_time_keeps_it_for_its_request() {
    test(async {
        let (world, stranger) = polled();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = polled_once(world.lock("k").wait(LONG));
        let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        world.pass(1900 * MS).await;
        world.store.next(Op::Acquire, [Step::Late(4 * SECOND)]);
        world.pass_until(100 * MS, next.as_mut()).await.unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Abandon), 0);
        world.pass_until(100 * MS, behind).await.unwrap().unwrap().release().await.unwrap();
        freed(&stranger, "k").await;
    });
}

/// Others have looked while it asked, long ago. Its release has a time of its own.
#[test]
fn a_caller_that_held_for_long_keeps_its_turn_for_its_release() {
    test(async {
        let (world, _) = polled();
        world.store.next(Op::Acquire, [Step::Late(2 * SECOND)]);
        let asks = tokio::spawn(world.lock("k").acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
        let held = world.pass_until(100 * MS, asks).await.unwrap().unwrap();
        world.pass(20 * SECOND).await;
        world.store.next(Op::Release, [Step::Late(1900 * MS)]);
        let release = tokio::spawn(held.release());
        world.pass(1800 * MS).await;
        assert_eq!(world.store.calls(Op::Acquire), 1, "the release is on its way");
        world.pass_until(100 * MS, release).await.unwrap().unwrap();
        world.pass_until(100 * MS, behind).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Whether the release before it was looked at, or was never polled to its end: each has a time of its own.
#[test]
fn each_release_on_its_way_is_contention_for_its_own_time() {
    for leak in [false, true] {
        test(async move {
            let world = World::new();
            let mut held = world.lock("k").acquire().await.unwrap();
            for round in 0..2 {
                let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
                let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
                calm().await;
                let is_leaked = leak && round == 0;
                world.store.next(Op::Release, [if is_leaked { Step::Hang } else { Step::Late(1900 * MS) }]);
                let mut release = Box::pin(held.release());
                assert!(poll_once(&mut release).is_pending());
                world.pass(1200 * MS).await;
                let error = world.lock("k").try_acquire().now_or_never().unwrap().unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::Busy, "{round}");
                if is_leaked {
                    std::mem::forget(release);
                } else {
                    world.pass_until(100 * MS, release).await.unwrap();
                }
                held = world.pass_until(100 * MS, next).await.unwrap().unwrap();
                behind.abort();
                world.pass(10 * SECOND).await;
            }
            held.release().await.unwrap();
        });
    }
}

/// It asks for tokens, to pass its hold on.
#[test]
fn a_release_of_a_cohort_that_is_not_polled_keeps_the_key_from_nobody() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        world.store.next(Op::Reserve, [Step::Hang]);
        let mut release = Box::pin(first.release());
        assert!(poll_once(&mut release).is_pending());
        // Longer than its lease, which is not renewed any more.
        let second = world.pass_until(SECOND, second).await.unwrap().unwrap();
        second.confirm().await.unwrap();
        second.release().await.unwrap();
        drop(release);
        world.empty().await;
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

/// A start that the store may have noted is undone before it asks again.
#[test]
fn a_late_caller_with_once_per_runs() {
    for granted in [false, true] {
        test(async move {
            let world = periods::world();
            let held = world.lock("k").acquire().await.unwrap();
            if granted {
                held.release().await.unwrap();
                world.store.next(Op::Acquire, [Step::Late(SECOND)]);
                let unpolled = polled_once(once(&world).wait(LONG));
                goes_on(&world, unpolled, false).await;
            } else {
                let unpolled = polled_once(once(&world).wait(LONG));
                held.release().await.unwrap();
                goes_on(&world, unpolled, false).await;
            }
            let again = once(&world).wait(LONG).acquire().await.unwrap_err();
            assert_eq!(*again.kind(), ErrorKind::AlreadyRun);
        });
    }
}

/// The store would keep the lock as long as the process lives.
#[test]
fn a_release_that_was_not_sent_and_is_not_polled_is_sent_where_leases_do_not_end_alone() {
    for leak in [false, true] {
        test(async move {
            let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
            let guard = world.lock("k").acquire().await.unwrap();
            world.store.next(Op::Release, [Step::Hang]);
            let mut releasing = Box::pin(guard.release());
            assert!(poll_once(&mut releasing).is_pending());
            let mut releasing = Some(releasing);
            if leak {
                std::mem::forget(releasing.take());
            }
            // Less than the lease of memory.
            world.pass(5 * SECOND).await;
            freed(&stranger(&world), "k").await;
            let next = world.lock("k").acquire().await.unwrap();
            if let Some(releasing) = releasing {
                releasing.await.unwrap();
                world.events.expect("Released", 1).await;
            }
            calm().await;
            next.confirm().await.unwrap();
            next.release().await.unwrap();
            freed(&world, "k").await;
        });
    }
}

/// The simulation found it: they ended in an outage.
#[test]
fn callers_behind_a_turn_that_was_taken_anew_know_that_the_store_answers() {
    test(async {
        let (world, other) = neighbours();
        let held = other.lock("k").acquire().await.unwrap();
        let asks = || world.store.calls(Op::Acquire);
        let mut waits = Box::pin(world.lock("k").wait(LONG).acquire());
        until("it has asked", || poll_once(&mut waits).is_pending() && asks() == 1).await;
        // It is not polled, so its turn goes to the next caller.
        let next = world.lock("k").wait(Wait::UpTo(2 * LONGEST)).acquire();
        assert_eq!(world.pass_until(100 * MS, next).await.unwrap_err().kind(), &ErrorKind::WaitTimeout);
        let before = asks();
        assert!(before > 1, "the next caller has not had the turn");
        until("it has asked anew", || poll_once(&mut waits).is_pending() && asks() > before).await;
        let behind = world.lock("k").wait(Wait::UpTo(SECOND)).acquire();
        assert_eq!(world.pass_until(100 * MS, behind).await.unwrap_err().kind(), &ErrorKind::WaitTimeout);
        held.release().await.unwrap();
    });
}
