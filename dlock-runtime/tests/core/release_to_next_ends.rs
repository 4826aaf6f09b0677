//! A release that asks for the next caller, while something else ends: the registry, the runtime, the time of the
//! grant.

use dlock_runtime::{Clock, ErrorKind, Event, LossCause, Renew};

use crate::acquire::neighbours;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, freed, full, held_and_awaited, poll_once, test, until};

/// It is about to hear of the shutdown, and has not been polled since.
#[test]
fn after_a_shutdown_a_release_asks_for_no_next_caller() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        let registry = world.registry.clone();
        let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        calm().await;
        held.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
        assert_eq!(next.await.unwrap_err().kind(), &ErrorKind::ShutDown);
        let report = world.pass_until(SECOND / 10, shutdown).await.unwrap();
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        world.empty().await;
    });
}

/// The store counts the lease from the request of the release, however late the next caller reads the answer.
#[test]
fn a_grant_counts_from_before_it_was_asked_for() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").ttl(10 * SECOND).renew(Renew::Off).wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        held.release().await.unwrap();
        world.clock.advance(4 * SECOND);
        let next = next.await.unwrap();
        assert!(next.remaining() <= 6 * SECOND, "{:?}", next.remaining());
        next.release().await.unwrap();
        world.empty().await;
    });
}

/// The guard was moved to a runtime that stands still. Its neighbours on the first runtime must go on.
#[test]
fn a_release_on_another_runtime_delays_nobody() {
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let mut release = Box::pin(held.release());
        {
            let _there = other.enter();
            assert!(poll_once(&mut release).is_pending());
        }
        world.pass_until(SECOND / 10, next).await.unwrap().unwrap().release().await.unwrap();
        release.await.unwrap();
        world.empty().await;
    });
}

/// It may be free meanwhile, or a stranger's: whoever releases hears of the loss, and the next one has what the store
/// says.
#[test]
fn a_release_that_asks_for_the_next_caller_reports_a_forgotten_hold_as_lost() {
    test(async {
        for is_taken in [false, true] {
            let (world, stranger) = neighbours();
            let held = world.lock("k").acquire().await.unwrap();
            let token = held.fence().unwrap();
            let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
            calm().await;
            world.memory.forget(&full("k"));
            let theirs = if is_taken { Some(stranger.lock("k").try_acquire().await.unwrap()) } else { None };
            let error = held.release().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Lost(LossCause::Store));
            assert_eq!(world.store.calls(Op::Carry), 1);
            calm().await;
            assert_eq!(next.is_finished(), !is_taken);
            if let Some(theirs) = theirs {
                theirs.confirm().await.unwrap();
                theirs.release().await.unwrap();
            }
            let next = next.await.unwrap().unwrap();
            assert!(next.fence().unwrap().get() > token.get());
            next.release().await.unwrap();
            world.empty().await;
        }
    });
}

/// The caller has taken over the answer of the release, and goes away before it uses it.
#[test]
fn a_caller_that_goes_away_from_its_place_in_the_queue_leaves_none() {
    test(async {
        let (world, stranger) = neighbours();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        let elsewhere = tokio::spawn(stranger.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        assert!(poll_once(&mut next).is_pending(), "it stands behind a stranger");
        drop(next);
        until("its place is given up", || world.store.calls(Op::Abandon) == 1).await;
        elsewhere.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

/// An answer for a caller that is gone is not for the caller behind it, which has other options.
#[test]
fn an_answer_is_only_for_the_caller_it_was_asked_for() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").ttl(6 * SECOND).wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        let behind = tokio::spawn(world.lock("k").ttl(60 * SECOND).renew(Renew::Off).wait(LONG).acquire());
        calm().await;
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let release = tokio::spawn(held.release());
        calm().await;
        drop(next);
        world.pass_until(SECOND / 10, release).await.unwrap().unwrap();
        let behind = behind.await.unwrap().unwrap();
        assert!(behind.remaining() > 30 * SECOND, "{:?}", behind.remaining());
        behind.release().await.unwrap();
        world.empty().await;
    });
}

/// While the request of a release is abandoned, no caller hears of contention because of it.
#[test]
fn the_request_of_a_failed_release_is_no_contention_for_the_next_caller() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        world.store.next(Op::Release, [Step::Fail]);
        world.store.next(Op::Abandon, [Step::Late(100 * MS)]);
        held.release().await.unwrap();
        drop(next);
        until("it is released after all", || world.store.calls(Op::Release) == 2).await;
        calm().await;
        let mut asks = Box::pin(world.lock("k").try_acquire());
        assert!(poll_once(&mut asks).is_pending());
        let guard = world.pass_until(10 * MS, asks).await.unwrap();
        guard.release().await.unwrap();
        world.empty().await;
    });
}

/// Two connections have no order, so a request is abandoned over the connection that it used.
#[test]
fn a_request_made_on_our_thread_is_abandoned_there_and_one_of_its_caller_where_the_caller_made_it() {
    test(async {
        let here = dlock_contract::Origin::here();
        for fails in [true, false] {
            let (world, stranger) = neighbours();
            let held = world.lock("k").acquire().await.unwrap();
            let mut next = Box::pin(world.lock("k").wait(LONG).acquire());
            assert!(poll_once(&mut next).is_pending());
            let elsewhere = tokio::spawn(stranger.lock("k").wait(LONG).acquire());
            calm().await;
            if fails {
                world.store.next(Op::Release, [Step::Fail]);
            }
            // Released on our thread.
            drop(held);
            let theirs = world.pass_until(SECOND / 10, elsewhere).await.unwrap().unwrap();
            calm().await;
            assert!(poll_once(&mut next).is_pending());
            if fails {
                until("it is undone", || world.store.calls(Op::Abandon) > 0).await;
            }
            drop(next);
            until("it is undone", || world.store.calls(Op::Abandon) > 0).await;
            assert_eq!(world.store.abandoned()[0] == here, !fails, "{fails}");
            theirs.release().await.unwrap();
            world.empty().await;
        }
    });
}

/// A fair caller gets the lock between the request and its answer. The answer is still for the caller that it was asked
/// for.
#[test]
fn an_answer_comes_although_another_release_would_ask_too() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let fair = tokio::spawn(world.lock("k").fair(true).wait(LONG).acquire());
        calm().await;
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let release = tokio::spawn(held.release());
        let fair = fair.await.unwrap().unwrap();
        world.pass_until(SECOND / 10, release).await.unwrap().unwrap();
        calm().await;
        fair.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (2, 1));
        world.empty().await;
    });
}

#[test]
fn a_caller_that_a_release_asks_for_counts_as_one_waiter() {
    test(async {
        let world = World::new();
        let lock = || world.lock("k").max_waiters(2).wait(LONG);
        let (held, first) = held_and_awaited(lock(), lock()).await;
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let release = tokio::spawn(held.release());
        calm().await;
        let second = tokio::spawn(lock().acquire());
        calm().await;
        assert_eq!(*lock().acquire().await.unwrap_err().kind(), ErrorKind::QueueFull { max: 2 });
        world.pass_until(SECOND / 10, release).await.unwrap().unwrap();
        for waiting in [first, second] {
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
    });
}

/// A handle of the released hold still exists, and it blocks no other caller.
#[test]
fn a_hold_that_was_handed_on_is_gone_although_its_handle_is_kept() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let handle = dlock_runtime::Held::clone(&held);
        let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        freed(&world, "k").await;
        drop(handle);
    });
}

#[test]
fn a_request_made_by_a_release_counts_as_an_attempt_of_the_next_caller() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        let attempts = |(_, event): (String, Event)| match event {
            Event::Acquired { attempts, .. } => Some(attempts),
            _ => None,
        };
        let attempts: Vec<_> = world.events.all().into_iter().filter_map(attempts).collect();
        assert_eq!(attempts, [1, 1]);
    });
}

/// The answer is lost, and the abandon takes its time. Meanwhile the caller asks for itself, and keeps the lock that it
/// wins.
#[test]
fn an_abandon_after_a_release_does_not_undo_the_callers_own_request() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").ttl(60 * SECOND).wait(LONG)).await;
        world.store.next(Op::Release, [Step::LostReply]);
        world.store.next(Op::Abandon, [Step::Fail]);
        let release = tokio::spawn(held.release());
        let next = world.pass_until(SECOND / 10, next).await.unwrap().unwrap();
        release.await.unwrap().unwrap();
        world.pass(3 * SECOND).await;
        assert_eq!(world.store.calls(Op::Abandon), 2);
        next.confirm().await.unwrap();
        next.release().await.unwrap();
        world.empty().await;
    });
}

/// The store must hear how the run ended.
#[test]
fn a_run_with_a_record_asks_for_no_next_caller() {
    test(async {
        let world = World::new();
        let (held, next) = held_and_awaited(world.lock("k").record(true), world.lock("k").wait(LONG)).await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Carry), 0);
        assert!(world.lock("k").last_success().await.unwrap().is_some());
    });
}

#[test]
fn callers_wait_in_the_stores_queue_where_no_release_can_ask_for_them() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.exchange = false);
        let (held, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        assert_eq!(world.store.calls(Op::Acquire), 2);
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}
