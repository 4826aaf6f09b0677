//! Turns within this process.

use std::sync::{Arc, Mutex};

use dlock_contract::WakeStyle;
use dlock_runtime::{ErrorKind, Mode};

use crate::acquire::neighbours;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, freed, held_and_awaited, test};

#[test]
fn neighbours_are_served_in_the_order_in_which_they_came() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for id in 0..20 {
            let order = order.clone();
            tasks.push(tokio::spawn(world.lock("k").wait(LONG).run(move |_| async move {
                order.lock().unwrap().push(id);
                tokio::task::yield_now().await;
            })));
            calm().await;
        }
        assert_eq!(world.store.calls(Op::Acquire), 1, "one of a process holds, and its release will ask for the next");
        held.release().await.unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(order.lock().unwrap().iter().copied().eq(0..20));
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (1, 20));
    });
}

#[test]
fn the_wait_also_counts_in_the_local_queue() {
    test(async {
        let world = World::new();
        let (_held, _stands) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let before = world.clock.now();
        let error = world.pass_until(SECOND / 10, world.lock("k").acquire()).await.unwrap_err();
        let waited = world.clock.now().since(before);
        assert_eq!((error.kind().as_str(), error.attempts()), ("wait_timeout", 0));
        assert!(waited >= 10 * SECOND && waited < 11 * SECOND, "{waited:?}");
    });
}

/// A caller in the store's queue gets the lock from its neighbour's release, so it asks once.
#[test]
fn the_next_caller_joins_the_stores_queue_during_the_hold() {
    test(async {
        let world = World::with(&dlock_runtime::Clock::manual(), |caps| caps.exchange = false);
        for _ in 0..10 {
            let (guard, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
            drop(guard);
            next.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(world.store.calls(Op::Acquire), 20);
    });
}

/// Where a waiter would only poll, it asks after its neighbour's release, and finds the lock free.
#[test]
fn the_next_caller_asks_only_after_the_release_if_the_store_hands_nothing_over() {
    test(async {
        let world = World::with(&dlock_runtime::Clock::manual(), |caps| {
            caps.wake = WakeStyle::Poll { from: SECOND, to: SECOND };
        });
        for _ in 0..10 {
            let (guard, next) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
            guard.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(world.store.calls(Op::Acquire), 20);
    });
}

/// A caller that does not wait hears of a neighbour's hold without a request.
#[test]
fn a_neighbours_hold_is_contention_without_a_request() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        for _ in 0..3 {
            let error = world.lock("k").try_acquire().await.unwrap_err();
            assert_eq!(error.kind().as_str(), "busy");
        }
        assert_eq!(world.store.calls(Op::Acquire), 1);
        held.release().await.unwrap();
    });
}

/// The caller that asks the store counts as a waiter too, if another owner holds the lock, also in another process.
#[test]
fn all_waiters_of_a_key_are_counted() {
    test(async {
        let (world, stranger) = neighbours();
        let (held, first) = held_and_awaited(stranger.lock("k"), world.lock("k").wait(LONG).max_waiters(1)).await;
        let error = world.lock("k").wait(LONG).max_waiters(1).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::QueueFull { max: 1 });
        held.release().await.unwrap();
        let own = first.await.unwrap().unwrap();
        let second = tokio::spawn(world.lock("k").wait(LONG).max_waiters(1).acquire());
        calm().await;
        let error = world.lock("k").wait(LONG).max_waiters(1).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::QueueFull { max: 1 });
        own.release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
        freed(&world, "k").await;
    });
}

#[test]
fn an_unfinished_abandon_of_a_neighbour_is_no_contention() {
    test(async {
        let world = World::new();
        for _ in 0..50 {
            world.store.next(Op::Acquire, [Step::Refuse]);
            world.lock("k").try_acquire().await.unwrap_err();
            // Our thread may still be abandoning the first attempt.
            world.lock("k").try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}

/// The store's line knows in which order the callers of all processes came.
#[test]
fn a_fair_caller_joins_the_stores_queue_itself() {
    test(async {
        let (world, other) = neighbours();
        let order = Arc::new(Mutex::new(Vec::new()));
        let held = other.lock("k").acquire().await.unwrap();
        let mut tasks = Vec::new();
        for (id, place) in [&world, &world, &other, &world].into_iter().enumerate() {
            let order = order.clone();
            tasks.push(tokio::spawn(place.lock("k").fair(true).wait(LONG).run(move |_| async move {
                order.lock().unwrap().push(id);
            })));
            calm().await;
        }
        assert_eq!(world.store.calls(Op::Acquire), 3, "each asks for itself");
        let error = world.lock("k").fair(true).wait(LONG).max_waiters(3).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::QueueFull { max: 3 });
        assert_eq!(world.lock("k").fair(true).try_acquire().await.unwrap_err().kind().as_str(), "busy");
        held.release().await.unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
        world.empty().await;
        freed(&world, "k").await;
    });
}

#[test]
fn a_caller_that_leaves_the_stores_queue_leaves_nothing() {
    test(async {
        let (world, other) = neighbours();
        let held = other.lock("k").acquire().await.unwrap();
        let gone = tokio::spawn(world.lock("k").fair(true).wait(LONG).acquire());
        let stays = tokio::spawn(world.lock("k").fair(true).wait(LONG).acquire());
        calm().await;
        gone.abort();
        calm().await;
        held.release().await.unwrap();
        stays.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
        freed(&world, "k").await;
    });
}

/// A caller behind an unfinished abandon may use another mode. While a neighbour holds the lock it may not.
#[test]
fn another_mode_is_a_conflict_while_a_neighbour_holds() {
    test(async {
        let world = World::with(&dlock_runtime::Clock::manual(), |caps| caps.exchange = false);
        world.store.always(Op::Abandon, Step::Hang);
        let (held, gone) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        gone.abort();
        calm().await;
        let error = world.lock("k").mode(Mode::Read).wait(LONG).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::KeyConflict);
        let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        world.pass_until(SECOND / 10, next).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Another caller of this process holds the lock, so it waits from the beginning, and not only since the store has said so.
#[test]
fn a_caller_that_asks_beside_a_hold_counts_as_a_waiter() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let counts = || world.lock("k").attempts(1000).max_waiters(1).wait(LONG);
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let asks = tokio::spawn(counts().acquire());
        calm().await;
        assert_eq!(*counts().acquire().await.unwrap_err().kind(), ErrorKind::QueueFull { max: 1 });
        held.release().await.unwrap();
        world.pass_until(100 * MS, asks).await.unwrap().unwrap().release().await.unwrap();
    });
}
