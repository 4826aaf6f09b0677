//! Turns within this process.

use std::sync::{Arc, Mutex};

use crate::support::{LONG, Op, SECOND, Step, World, calm, test};

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
        assert_eq!(world.store.calls(Op::Acquire), 1, "only one of a process asks");
        held.release().await.unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(order.lock().unwrap().iter().copied().eq(0..20));
        assert_eq!(world.store.calls(Op::Acquire), 21);
    });
}

#[test]
fn the_wait_runs_also_in_the_local_line() {
    test(async {
        let world = World::new();
        let _held = world.lock("k").acquire().await.unwrap();
        let before = world.clock.now();
        let error = world.pass_until(SECOND / 10, world.lock("k").acquire()).await.unwrap_err();
        let waited = world.clock.now().since(before);
        assert_eq!((error.kind().as_str(), error.attempts()), ("wait_timeout", 0));
        assert!(waited >= 10 * SECOND && waited < 11 * SECOND, "{waited:?}");
    });
}

/// The turn goes with the hold, so the next one finds the store free and need not ask twice.
#[test]
fn the_next_one_asks_only_after_the_release() {
    test(async {
        let world = World::new();
        for _ in 0..10 {
            let guard = world.lock("k").acquire().await.unwrap();
            let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
            calm().await;
            drop(guard);
            next.await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(world.store.calls(Op::Acquire), 20);
    });
}

#[test]
fn the_leftovers_of_a_failed_attempt_are_no_contention() {
    test(async {
        let world = World::new();
        for _ in 0..50 {
            world.store.next(Op::Acquire, [Step::Refuse]);
            world.lock("k").try_acquire().await.unwrap_err();
            // Our thread may still be looking for what the first one left.
            world.lock("k").try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}
