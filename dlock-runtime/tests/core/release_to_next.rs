//! A release that asks for the next caller of its process.

use std::sync::{Arc, Mutex};

use dlock_runtime::{Backoff, ErrorKind, OncePer, Retry, Wait};
use futures::FutureExt;

use crate::acquire::neighbours;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, freed, held_and_awaited, poll_once, test};

const NEVER_AGAIN: Retry = Retry { times: 0, backoff: Some(Backoff::new(SECOND, SECOND)) };

#[test]
fn a_release_also_asks_for_the_next_caller() {
    test(async {
        let world = World::new();
        let mut guard = world.lock("k").acquire().await.unwrap();
        for carried in 1..=10 {
            assert_eq!(world.store.calls(Op::Expects), carried - 1);
            let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
            calm().await;
            assert_eq!(world.store.calls(Op::Expects), carried, "the store may prepare for it");
            let token = guard.fence().unwrap();
            guard.release().await.unwrap();
            assert_eq!(world.store.calls(Op::Carry), carried);
            guard = next.await.unwrap().unwrap();
            assert!(guard.fence().unwrap().get() > token.get());
        }
        guard.release().await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (1, 10));
        assert_eq!((world.store.calls(Op::Release), world.store.calls(Op::Abandon)), (11, 0));
        assert!(world.memory.is_empty());
    });
}

#[test]
fn the_release_of_a_dropped_guard_asks_for_the_next_caller_too() {
    test(async {
        let world = World::new();
        let mut guard = world.lock("k").acquire().await.unwrap();
        for _ in 0..3 {
            let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
            calm().await;
            drop(guard);
            guard = next.await.unwrap().unwrap();
        }
        guard.release().await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (1, 3));
    });
}

#[test]
fn a_hold_is_contention_for_its_neighbours_until_its_release_is_answered() {
    test(async {
        for awaited in [true, false] {
            let world = World::new();
            let held = world.lock("k").acquire().await.unwrap();
            let next = awaited.then(|| tokio::spawn(world.lock("k").wait(LONG).acquire()));
            calm().await;
            world.store.next(Op::Release, [Step::Late(SECOND)]);
            let mut release = Box::pin(held.release());
            assert!(poll_once(&mut release).is_pending());
            calm().await;
            let error = world.lock("k").try_acquire().now_or_never().unwrap().unwrap_err();
            assert_eq!((error.kind(), world.store.calls(Op::Acquire)), (&ErrorKind::Busy, 1));
            world.pass_until(SECOND / 10, release).await.unwrap();
            if let Some(next) = next {
                next.await.unwrap().unwrap().release().await.unwrap();
            }
            freed(&world, "k").await;
        }
    });
}

/// A waiter of another process comes first. The answer of the release is still valid for the next caller after that.
#[test]
fn the_next_caller_stands_behind_waiters_of_other_processes() {
    test(async {
        let (world, stranger) = neighbours();
        let held = world.lock("k").acquire().await.unwrap();
        let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
        let elsewhere = tokio::spawn(stranger.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        let theirs = elsewhere.await.unwrap().unwrap();
        calm().await;
        assert!(!next.is_finished());
        theirs.release().await.unwrap();
        let ours = next.await.unwrap().unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (1, 1));
        ours.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

/// A release cannot ask with the options of this caller.
#[test]
fn callers_with_other_options_ask_for_themselves() {
    test(async {
        let world = World::new();
        let ways: [fn(dlock_runtime::Lock) -> dlock_runtime::Lock; 3] =
            [|lock| lock.fair(true), |lock| lock.attempts(1000), |lock| lock.once_per(OncePer::new(3600 * SECOND))];
        for with in ways {
            let held = world.lock("k").acquire().await.unwrap();
            let before = world.store.calls(Op::Acquire);
            let next = tokio::spawn(with(world.lock("k").wait(LONG)).acquire());
            calm().await;
            assert_eq!(world.store.calls(Op::Acquire), before + 1, "it stands in the store's line already");
            held.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(world.store.calls(Op::Carry), 0);
    });
}

/// A key that has to stay taken is not free at the release.
#[test]
fn a_hold_that_is_not_simply_freed_asks_for_no_next_caller() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k").min_hold(SECOND), world.lock("k").wait(LONG)).await;
        assert_eq!(world.store.calls(Op::Acquire), 2, "it stands in the store's line already");
        held.release().await.unwrap();
        world.pass_until(SECOND / 10, next).await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
    });
}

/// A caller in the local queue waits for nobody once the hold before it is lost.
#[test]
fn after_a_loss_the_next_caller_asks_for_itself() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(
            world.lock("k").ttl(6 * SECOND).renew(dlock_runtime::Renew::Off),
            world.lock("k").wait(LONG),
        )
        .await;
        let next = world.pass_until(SECOND / 10, next).await.unwrap().unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 2);
        assert!(held.check().is_err());
        next.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
    });
}

#[test]
fn a_caller_that_goes_away_while_a_release_asks_for_it_leaves_nothing() {
    test(async {
        for steps in [Step::Late(SECOND), Step::LostReply, Step::Hang, Step::Fail] {
            let world = World::new();
            let held = world.lock("k").acquire().await.unwrap();
            let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
            assert!(poll_once(&mut next).is_pending());
            world.store.next(Op::Release, [steps]);
            let mut release = Box::pin(held.release());
            let asked = poll_once(&mut release);
            drop(next);
            if asked.is_pending() {
                // As far as is known, the lock was held to the end, however the answer was lost.
                world.pass_until(SECOND / 10, release).await.unwrap();
            }
            world.pass(3 * SECOND).await;
            world.empty().await;
        }
    });
}

/// The release is given up in the middle, or its answer is lost: the next one gets the lock all the same, and once
/// only.
#[test]
fn a_release_without_an_answer_costs_the_next_caller_only_time() {
    test(async {
        for polls in 0..4 {
            for step in [Step::Pass, Step::Late(SECOND), Step::LostReply, Step::Hang, Step::Fail] {
                let world = World::new();
                let held = world.lock("k").acquire().await.unwrap();
                let token = held.fence().unwrap();
                let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
                calm().await;
                world.store.next(Op::Release, [step]);
                let mut release = Box::pin(held.release());
                for _ in 0..polls {
                    if poll_once(&mut release).is_ready() {
                        break;
                    }
                    calm().await;
                }
                drop(release);
                let next = world.pass_until(SECOND / 10, next).await.unwrap().unwrap();
                assert!(next.fence().unwrap().get() > token.get());
                world.pass(3 * SECOND).await;
                next.check().unwrap();
                next.release().await.unwrap();
                world.pass(3 * SECOND).await;
                world.empty().await;
            }
        }
    });
}

#[test]
fn an_answer_that_is_too_late_is_not_used() {
    test(async {
        let world = World::new();
        let (held, next) =
            held_and_awaited(world.lock("k").ttl(SECOND), world.lock("k").ttl(200 * MS).wait(LONG)).await;
        world.store.next(Op::Release, [Step::Late(SECOND / 2)]);
        let release = tokio::spawn(held.release());
        let next = world.pass_until(SECOND / 10, next).await.unwrap().unwrap();
        next.check().unwrap();
        release.await.unwrap().unwrap();
        next.release().await.unwrap();
        world.pass(SECOND).await;
        world.empty().await;
    });
}

/// Its wait ends in the local line, without a request.
#[test]
fn the_wait_ends_behind_a_neighbour() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let next = world.lock("k").wait(Wait::UpTo(SECOND)).acquire();
        let error = world.pass_until(SECOND / 10, next).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::WaitTimeout, 0));
        held.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
        freed(&world, "k").await;
    });
}

/// The callers wait in the order in which they came, whether a release or they themselves ask.
#[test]
fn callers_that_ask_for_themselves_do_not_overtake() {
    test(async {
        let world = World::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = world.lock("k").acquire().await.unwrap();
        let mut tasks = Vec::new();
        for id in 0..12 {
            let order = order.clone();
            let lock = world.lock("k").wait(LONG);
            let lock = if id % 3 == 2 { lock.attempts(1000) } else { lock };
            tasks.push(tokio::spawn(lock.run(move |_| async move {
                order.lock().unwrap().push(id);
            })));
            calm().await;
        }
        held.release().await.unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(order.lock().unwrap().iter().copied().eq(0..12), "{order:?}");
        assert!(world.memory.is_empty());
    });
}

/// The releaser may do something else before it reads the answer.
#[test]
fn nobody_waits_for_a_release_that_is_not_polled() {
    test(async {
        for waits_already in [false, true] {
            let world = World::new();
            let held = world.lock("k").acquire().await.unwrap();
            let wait = || tokio::spawn(world.lock("k").wait(LONG).acquire());
            let early = waits_already.then(&wait);
            calm().await;
            if !waits_already {
                world.store.next(Op::Release, [Step::LostReply]);
            }
            let mut release = Box::pin(held.release());
            assert!(poll_once(&mut release).is_pending());
            let next = early.unwrap_or_else(wait);
            next.await.unwrap().unwrap().release().await.unwrap();
            drop(release);
            world.pass(3 * SECOND).await;
            world.empty().await;
        }
    });
}

/// They are in the store's queue in the order in which they came, also those that found a neighbour asking.
#[test]
fn fair_callers_wait_for_no_neighbour() {
    test(async {
        let world = World::new();
        let (held, plain) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        // All three come before the first of them has been answered.
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let fair: Vec<_> = (0..3)
            .map(|id| {
                let order = order.clone();
                tokio::spawn(world.lock("k").fair(true).wait(LONG).run(async move |_| order.lock().unwrap().push(id)))
            })
            .collect();
        world.pass(2 * SECOND).await;
        assert_eq!(world.store.calls(Op::Acquire), 4, "each of them stands in the store's line");
        held.release().await.unwrap();
        for task in fair {
            task.await.unwrap().unwrap();
        }
        plain.await.unwrap().unwrap().release().await.unwrap();
        assert!(order.lock().unwrap().iter().copied().eq(0..3), "{order:?}");
        world.empty().await;
    });
}

#[test]
fn the_caller_behind_one_that_goes_away_asks_for_itself() {
    test(async {
        let world = World::new();
        let (held, first) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let counts = tokio::spawn(world.lock("k").attempts(1000).wait(LONG).acquire());
        calm().await;
        assert_eq!(world.store.calls(Op::Acquire), 1);
        first.abort();
        calm().await;
        assert_eq!(world.store.calls(Op::Acquire), 2, "it stands in the store's line");
        held.release().await.unwrap();
        counts.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

/// Nobody holds such a lock.
#[test]
fn a_lock_won_for_a_caller_that_is_gone_is_no_contention() {
    test(async {
        let world = World::new();
        for _ in 0..20 {
            let held = world.lock("k").acquire().await.unwrap();
            let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
            assert!(poll_once(&mut next).is_pending());
            held.release().await.unwrap();
            drop(next);
            freed(&world, "k").await;
        }
    });
}

#[test]
fn a_shutdown_asks_for_no_next_caller() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let mut shutdown = Box::pin(world.registry.shutdown(SECOND));
        assert!(poll_once(&mut shutdown).is_pending());
        // The waiter's task has not run yet.
        drop(held);
        world.pass_until(SECOND / 10, shutdown).await;
        assert_eq!(next.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        assert_eq!(world.store.calls(Op::Carry), 0);
        world.empty().await;
    });
}

/// Its task had other things to do for longer than the lock was granted.
#[test]
fn an_answer_that_nobody_reads_is_asked_for_again() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").wait(LONG).retry(NEVER_AGAIN).acquire());
        assert!(poll_once(&mut next).is_pending());
        held.release().await.unwrap();
        world.clock.advance(60 * SECOND);
        let next = next.await.unwrap();
        next.check().unwrap();
        next.release().await.unwrap();
        world.empty().await;
    });
}

/// A releaser on a runtime that stands still would keep the answer from the next callers.
#[test]
fn a_release_asks_only_for_callers_of_its_own_runtime() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let next = other.spawn(world.lock("k").wait(LONG).acquire());
        crate::support::until("it stands in the store's line", || world.store.calls(Op::Acquire) == 2).await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
    });
    other.shutdown_background();
}
