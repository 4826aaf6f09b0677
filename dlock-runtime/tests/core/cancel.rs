//! Futures that are dropped halfway leave nothing behind: in the store, in the queue, or in the lock.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dlock_runtime::Clock;
use dlock_runtime::{Error, Wait};

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, Step, World, calm, freed, held_and_awaited, test};

/// Polls at most `polls` times, with time and the other tasks going on in between, then drops. True if the future had
/// ended.
async fn poll_then_drop<T>(world: &World, polls: usize, future: impl Future<Output = Result<T, Error>>) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result.is_ok();
        }
        world.clock.advance(SECOND / 5);
        calm().await;
    }
    false
}

/// Drops the future after 0, 1, 2, … polls until it ends, and expects an empty store each time.
async fn drop_everywhere<T, F: Future<Output = Result<T, Error>>>(world: &World, future: impl Fn() -> F) -> usize {
    for polls in 0.. {
        let ended = poll_then_drop(world, polls, future()).await;
        world.store.behave();
        // Requests on their way to our thread end first.
        for _ in 0..8 {
            world.clock.advance(SECOND / 4);
            calm().await;
        }
        world.empty().await;
        freed(world, "k").await;
        if ended {
            return polls;
        }
        assert!(polls < 200, "it never ends");
    }
    0
}

#[test]
fn an_acquisition_dropped_anywhere_leaves_nothing() {
    test(async {
        for steps in [
            vec![],
            vec![Step::LostReply],
            vec![Step::Fail, Step::LostReply],
            vec![Step::Late(SECOND)],
            vec![Step::Fail, Step::Late(SECOND / 2), Step::Fail],
        ] {
            let world = World::new();
            let ended = drop_everywhere(&world, || {
                world.store.next(Op::Acquire, steps.clone());
                world.lock("k").wait(Wait::UpTo(20 * SECOND)).acquire()
            });
            ended.await;
        }
    });
}

/// The same where everything runs on dlock's own thread.
#[test]
fn an_acquisition_over_our_thread_dropped_anywhere_leaves_nothing() {
    test(async {
        for steps in [vec![], vec![Step::LostReply], vec![Step::Late(SECOND)]] {
            let world = World::with(&Clock::manual(), |profile| profile.runs_on = dlock_contract::RunsOn::OwnThread);
            let ended = drop_everywhere(&world, || {
                world.store.next(Op::Acquire, steps.clone());
                world.lock("k").wait(Wait::UpTo(20 * SECOND)).acquire()
            });
            assert!(ended.await > 0);
        }
    });
}

#[test]
fn a_run_dropped_anywhere_leaves_nothing() {
    test(async {
        let world = World::new();
        let body = |_| async {
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
        };
        let ended = drop_everywhere(&world, || {
            world.store.next(Op::Acquire, [Step::Late(SECOND / 2)]);
            world.store.next(Op::Release, [Step::Late(SECOND / 2)]);
            world.lock("k").run(body)
        });
        assert!(ended.await > 5);
    });
}

#[test]
fn a_waiter_dropped_in_the_stores_queue_is_not_handed_the_lock() {
    test(async {
        for polls in 1..8 {
            let (world, stranger) = neighbours();
            let held = stranger.lock("k").acquire().await.unwrap();
            poll_then_drop(&world, polls, world.lock("k").wait(LONG).acquire()).await;
            calm().await;
            held.release().await.unwrap();
            world.empty().await;
        }
    });
}

/// The lock is handed to it in the very moment in which it goes.
#[test]
fn a_waiter_dropped_with_its_grant_unread_releases_the_lock() {
    test(async {
        let (world, stranger) = neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        let mut waiting = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(crate::support::poll_once(&mut waiting).is_pending());
        held.release().await.unwrap();
        assert_eq!(world.memory.len(), 1, "it was handed over");
        drop(waiting);
        world.empty().await;
    });
}

#[test]
fn a_waiter_dropped_in_the_local_queue_gives_up_its_place() {
    test(async {
        let world = World::new();
        let (held, stands) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let mut first = Box::pin(world.lock("k").wait(LONG).acquire());
        let mut second = Box::pin(world.lock("k").wait(LONG).acquire());
        assert!(crate::support::poll_once(&mut first).is_pending());
        assert!(crate::support::poll_once(&mut second).is_pending());
        held.release().await.unwrap();
        stands.await.unwrap().unwrap().release().await.unwrap();
        // Called, but gone before it has noticed.
        drop(first);
        second.await.unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
        // The release before had asked for it and had won, so that grant is released. The remaining waiter asks for
        // itself.
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (2, 1));
    });
}

#[test]
fn a_release_dropped_anywhere_is_done_anyway() {
    test(async {
        for polls in 0..4 {
            let world = World::new();
            let guard = world.lock("k").acquire().await.unwrap();
            world.store.next(Op::Release, [Step::Late(SECOND / 2)]);
            poll_then_drop(&world, polls, guard.release()).await;
            world.empty().await;
            world.pass(SECOND).await;
            // However it went, it was released once.
            world.events.expect("Released", 1).await;
            assert_eq!(world.events.count("Lost"), 0);
        }
    });
}

#[test]
fn a_release_dropped_before_its_request_reached_the_store_is_done_anyway() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Release, [Step::Hang]);
        poll_then_drop(&world, 2, guard.release()).await;
        world.empty().await;
        world.events.expect("Released", 1).await;
    });
}

#[test]
fn a_confirmation_dropped_halfway_changes_nothing() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Hang]);
        poll_then_drop(&world, 2, guard.confirm()).await;
        world.pass(60 * SECOND).await;
        guard.check().unwrap();
    });
}
