//! Losing a lock: when exactly, which tasks hear of it, and the error for the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use dlock_contract::Expiry;
use dlock_runtime::{Clock, ErrorKind, Event, LossCause, Renew, Wait};
use futures::FutureExt;
use futures::future::join_all;

use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, freed, full, poll_once, test, until};

#[test]
fn a_hold_that_cannot_be_renewed_is_lost_at_its_deadline_and_not_before() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Fail);
        // A hundredth of the ttl and two milliseconds before it.
        let deadline = 30 * SECOND - 302 * MS;
        let mut lost = Box::pin(guard.lost());
        world.pass(deadline - MS).await;
        guard.check().unwrap();
        assert!(poll_once(&mut lost).is_pending());
        assert_eq!(world.events.count("Lost"), 0);
        world.clock.advance(MS);
        let error = lost.await;
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        assert!(!error.is_retryable());
        assert!(error.message().contains("; the last renewal failed: scripted outage"), "{error}");
        world.events.expect("Lost", 1).await;
        assert!(world.events.count("RenewalFailed") >= 3);
        assert!(reason_of_the_loss(&world).is_some_and(|reason| reason.starts_with("scripted outage")));
    });
}

fn reason_of_the_loss(world: &World) -> Option<Arc<str>> {
    let events = world.events.all();
    events
        .into_iter()
        .find_map(|(_, event)| if let Event::Lost { reason, .. } = event { Some(reason) } else { None })?
}

/// Then the process stood still, and no failure of the store is the reason.
#[test]
fn a_loss_does_not_name_a_failure_that_a_renewal_came_after() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Fail]);
        world.pass(20 * SECOND).await;
        world.events.expect("RenewalFailed", 1).await;
        world.clock.advance(40 * SECOND);
        let error = guard.check().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        assert!(!error.message().contains("scripted outage"), "{error}");
        world.events.expect("Lost", 1).await;
        assert_eq!(reason_of_the_loss(&world), None);
    });
}

/// Nobody polls: the renewal task itself declares the loss.
#[test]
fn a_loss_is_declared_although_nobody_asks() {
    test(async {
        let world = World::new();
        let _guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        world.pass(30 * SECOND).await;
        world.events.expect("Lost", 1).await;
    });
}

#[test]
fn a_hold_that_the_store_reports_lost_is_lost_at_once() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.memory.forget(&full("k"));
        world.pass(10 * SECOND).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
        // A neighbour need not wait for the loser's guard.
        freed(&world, "k").await;
        assert_eq!(guard.release().await.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
    });
}

fn in_sessions() -> World {
    World::with(&Clock::manual(), |can| can.expiry = Expiry::Session { told: SECOND })
}

/// A lease does not end before its time, so there the body was covered; a session may have ended at any time.
#[test]
fn an_unanswered_release_is_a_loss_if_locks_live_in_sessions() {
    test(async {
        for (world, ok) in [(in_sessions(), false), (World::new(), true)] {
            let guard = world.lock("k").acquire().await.unwrap();
            world.store.next(Op::Release, [Step::Fail]);
            let done = guard.release().await;
            assert_eq!(done.is_ok(), ok);
            if let Err(error) = done {
                assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Unconfirmed));
                world.events.expect("Lost", 1).await;
                assert_eq!(world.events.count("Released"), 0);
            }
            // It is given back all the same.
            world.pass(SECOND).await;
            freed(&world, "k").await;
        }
    });
}

/// A lease does not end before its time, so an answer after that time says nothing about the time of the body. An operator's
/// record does.
#[test]
fn a_release_that_is_answered_after_the_end_of_the_lease_is_a_loss_only_if_the_lock_was_broken() {
    test(async {
        for (delay, is_broken, lost) in
            [(100 * MS, false, Some(LossCause::Store)), (SECOND, false, None), (SECOND, true, Some(LossCause::Broken))]
        {
            let world = World::new();
            let guard = world.lock("k").acquire().await.unwrap();
            world.store.always(Op::Renew, Step::Fail);
            world.pass(30 * SECOND - 500 * MS).await;
            match is_broken {
                true => {
                    let id = world.lock("k").holders().await.unwrap().holders[0].id.unwrap();
                    assert!(world.lock("k").break_hold(id).await.unwrap());
                }
                false => world.memory.forget(&full("k")),
            }
            world.store.next(Op::Release, [Step::Late(delay)]);
            let mut release = Box::pin(guard.release());
            assert!(poll_once(&mut release).is_pending());
            world.pass(delay).await;
            let kind = release.await.err().map(|error| error.kind().clone());
            assert_eq!(kind, lost.map(ErrorKind::Lost));
            assert_eq!(world.events.count("Lost"), usize::from(lost.is_some()));
            assert_eq!(world.events.count("Released"), usize::from(lost.is_none()));
        }
    });
}

/// The renewal left before the release, and finds the lock gone after it.
#[test]
fn an_answer_that_comes_after_the_release_is_no_loss() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Late(2 * SECOND)]);
        world.pass(10 * SECOND).await;
        assert_eq!(world.store.calls(Op::Renew), 1);
        guard.release().await.unwrap();
        world.pass(10 * SECOND).await;
        assert_eq!(world.events.names(), ["Acquired", "Released"]);
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_release_of_a_hold_that_the_store_gave_away_reports_the_loss() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.memory.forget(&full("k"));
        assert_eq!(guard.release().await.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
        assert_eq!(world.events.names(), ["Acquired", "Lost"]);
    });
}

#[test]
fn a_lost_hold_is_not_given_a_second_life_by_a_late_renewal() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Late(4 * SECOND + 900 * MS));
        world.pass(25 * SECOND).await;
        world.store.always(Op::Renew, Step::Hang);
        world.pass(60 * SECOND).await;
        guard.check().unwrap_err();
        world.store.always(Op::Renew, Step::Pass);
        world.pass(60 * SECOND).await;
        guard.check().unwrap_err();
        world.events.expect("Lost", 1).await;
    });
}

/// A paused process finds out by itself, before any other task has run.
#[test]
fn check_sees_a_passed_deadline_without_the_renewal_task() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.clock.advance(7200 * SECOND);
        let error = guard.check().unwrap_err();
        // Belief had ended long before max_hold did.
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        assert!(guard.lost().now_or_never().is_some());
    });
}

#[test]
fn the_future_lost_never_ends_for_a_hold_that_was_released() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let held = dlock_runtime::Held::clone(&guard);
        let mut lost = Box::pin(held.lost());
        assert!(poll_once(&mut lost).is_pending());
        guard.release().await.unwrap();
        world.pass(60 * SECOND).await;
        assert!(poll_once(&mut lost).is_pending());
        assert!(held.check().is_err());
    });
}

#[test]
fn all_listeners_hear_of_a_loss_and_none_spins_meanwhile() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        let polls = AtomicUsize::new(0);
        let listeners = join_all((0..100).map(|_| {
            let mut lost = Box::pin(guard.lost());
            let polls = &polls;
            std::future::poll_fn(move |cx| {
                polls.fetch_add(1, Ordering::Relaxed);
                lost.as_mut().poll(cx)
            })
        }));
        let all = world.pass_until(SECOND, listeners).await;
        assert!(all.iter().all(|error| error.is_lost()));
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls <= 1000, "{polls} polls of a hundred listeners");
    });
}

/// A body may listen in each of a million iterations.
#[test]
fn a_listener_that_is_dropped_is_forgotten() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let task = Arc::new(Bomb);
        let mut lost = Box::pin(guard.lost());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&Waker::from(task.clone()))).is_pending());
        assert_eq!(Arc::strong_count(&task), 2);
        drop(lost);
        assert_eq!(Arc::strong_count(&task), 1);
    });
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    test(async {
        let world = World::new();
        let system = World::on(&Clock::system());
        let bomb = Waker::from(Arc::new(Bomb));
        let mut context = Context::from_waker(&bomb);
        let lost = world.lock("lost").renew(Renew::Off).acquire().await.unwrap();
        let kept = world.lock("kept").acquire().await.unwrap();
        let mut listening = Box::pin(lost.lost());
        assert!(listening.as_mut().poll(&mut context).is_pending());
        // And one on the machine's clock, which wakes on dlock's own thread.
        let mut sleep = Box::pin(system.clock.sleep_until(system.clock.now().after(MS)));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        // Our thread has woken it before this one.
        system.clock.sleep_until(system.clock.now().after(MS)).await;
        world.pass(300 * SECOND).await;
        kept.check().unwrap();
        world.events.expect("Lost", 1).await;
        system.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_store_with_expiry_is_not_asked_to_free_a_lost_lock_until_the_guard_is_dropped() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").max_hold(100 * SECOND).acquire().await.unwrap();
        world.pass(100 * SECOND).await;
        guard.check().unwrap_err();
        assert_eq!(world.store.calls(Op::Release), 0);
        drop(guard);
        world.empty().await;
        assert_eq!(world.store.calls(Op::Release), 1);
    });
}

/// A neighbour in this process gets the lock as soon as one in another process would.
#[test]
fn a_lock_that_outlives_max_hold_in_the_store_is_also_released_at_the_second_try() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").max_hold(40 * SECOND).acquire().await.unwrap();
        world.store.next(Op::Release, [Step::Fail]);
        world.pass(41 * SECOND).await;
        assert_eq!(*guard.check().unwrap_err().kind(), ErrorKind::Lost(LossCause::MaxHold));
        drop(guard);
        until("the first try", || world.store.calls(Op::Release) == 1).await;
        world.pass(SECOND).await;
        // The lease goes on for half a minute.
        freed(&world, "k").await;
    });
}

#[test]
fn a_forgotten_guard_ends_at_max_hold_for_the_neighbours_too() {
    test(async {
        let world = World::new();
        std::mem::forget(world.lock("k").max_hold(60 * SECOND).acquire().await.unwrap());
        let waiting = tokio::spawn(world.lock("k").wait(Wait::UpTo(600 * SECOND)).acquire());
        world.pass(59 * SECOND).await;
        assert!(!waiting.is_finished());
        let guard = world.pass_until(SECOND / 2, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        let again = world.lock("k").wait(LONG).acquire().await.unwrap();
        again.release().await.unwrap();
        calm().await;
        assert!(world.memory.is_empty());
    });
}
