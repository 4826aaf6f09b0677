//! Nested calls that ask for a lock of the enclosing call.

use std::sync::{Arc, Mutex};

use dlock_contract::Backend;
use dlock_runtime::{Clock, Error, ErrorKind, Held, LockKey, Mode, Wait, current, inherit};
use futures::FutureExt;

use crate::support::{LONG, Op, SECOND, Step, World, calm, freed, full, test};

fn would_deadlock<T>(result: Result<T, Error>) {
    let error = result.err().expect("told at once");
    assert_eq!(error.kind(), &ErrorKind::WouldDeadlock);
    assert_eq!((error.key(), error.backend()), (Some(full("k").as_str()), Some("m")));
    assert!(!error.is_retryable());
}

#[test]
fn a_nested_call_for_the_same_key_fails_at_once() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").wait(LONG);
        let outer = world.lock("k").run(|_| async move { inner.acquire().await });
        would_deadlock(outer.await.unwrap());
        assert_eq!(world.store.calls(Op::Acquire), 1);
        assert!(current().is_none());
    });
}

#[test]
fn a_call_for_the_same_key_two_levels_further_in_fails_at_once() {
    test(async {
        let world = World::new();
        let (middle, inner) = (world.lock("other"), world.lock("k").wait(LONG));
        let outer = world.lock("k").run(|_| middle.run(|_| async move { inner.acquire().await }));
        would_deadlock(outer.await.unwrap().unwrap());
    });
}

#[test]
fn a_nested_call_for_another_key_succeeds_and_current_is_the_innermost() {
    test(async {
        let world = World::new();
        let inner = world.lock("inner");
        let body = |outer: Held| async move {
            assert_eq!(current().unwrap().key(), outer.key());
            let seen = inner.run(|_| async { current().unwrap().key().clone() }).await.unwrap();
            tokio::task::yield_now().await;
            assert_eq!(current().unwrap().key(), outer.key());
            seen
        };
        assert_eq!(world.lock("outer").run(body).await.unwrap(), full("inner"));
        assert!(current().is_none());
    });
}

#[test]
fn the_same_key_on_another_backend_or_registry_is_another_lock() {
    test(async {
        let (world, stranger) = (World::new(), World::new());
        world.registry.install("other", dlock_memory::Memory::with_clock(&world.clock)).unwrap();
        let (other, foreign) = (world.lock("k").backend("other"), stranger.lock("k"));
        let outer =
            world.lock("k").run(|_| async move { other.run(|_| async { foreign.run(|_| async {}).await }).await });
        outer.await.unwrap().unwrap().unwrap();
    });
}

#[test]
fn a_backend_under_two_names_is_one_store() {
    test(async {
        let world = World::new();
        let shared: Arc<dyn Backend> = Arc::new(dlock_memory::Memory::with_clock(&world.clock));
        for name in ["one", "two"] {
            world.registry.install_shared(name, shared.clone()).unwrap();
        }
        let (asks, joins) = (world.lock("k").backend("two").wait(LONG), world.lock("k").backend("two").reentrant(true));
        let body = |held: Held| async move {
            assert_eq!(asks.acquire().await.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
            let token = joins.run(|joined| async move { joined.fence().unwrap() }).await.unwrap();
            assert_eq!(token.get(), held.fence().unwrap().get());
        };
        world.lock("k").backend("one").run(body).await.unwrap();
        // Also for a caller that would park the holder's thread.
        let held = world.lock("k").backend("one").acquire().await.unwrap();
        let parks = world.lock("k").backend("two").wait(LONG).acquire_blocking().map(drop);
        assert_eq!(parks.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
        held.release().await.unwrap();
    });
}

#[test]
fn a_call_that_would_wait_for_itself_by_another_client_of_the_store_is_told() {
    let told = |error: Error| {
        assert_eq!((error.kind(), error.backend()), (&ErrorKind::WouldDeadlock, Some("other")), "{error}");
        assert!(error.to_string().contains("\"m\""), "{error}");
    };
    test(async {
        let world = World::new();
        world.registry.install("other", world.memory.clone()).unwrap();
        let (one, other) = (world.lock("k").backend("other").wait(LONG), world.lock("k").backend("other").wait(LONG));
        let middle = world.lock("between");
        told(world.lock("k").run(|_| middle.run(|_| one.acquire())).await.unwrap().unwrap().map(drop).unwrap_err());
        told(world.lock("k").run_blocking(|_| other.acquire_blocking().map(drop)).unwrap().unwrap_err());
        // Also behind a neighbour that has the turn there, and waits for the same hold.
        let by_other = || world.lock("k").backend("other").wait(LONG);
        let (neighbour, behind) = (by_other(), by_other());
        let outer = world.lock("k").run(|_| async {
            let waits = tokio::spawn(async move { neighbour.acquire().await.unwrap().release().await });
            calm().await;
            (behind.acquire().await, waits)
        });
        let (refused, waits) = outer.await.unwrap();
        told(refused.map(drop).unwrap_err());
        world.pass_until(SECOND / 10, waits).await.unwrap().unwrap();
        // Another caller's hold is waited for, also in a store that has this key too.
        world.registry.install("stranger", dlock_memory::Memory::with_clock(&world.clock)).unwrap();
        let _held = world.lock("k").backend("stranger").acquire().await.unwrap();
        let waits = world.lock("k").backend("stranger").wait(Wait::UpTo(SECOND));
        let run = world.lock("k").run(|_| waits.acquire());
        let error = world.pass_until(SECOND / 10, run).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
        calm().await;
        freed(&world, "k").await;
    });
}

#[test]
fn a_nested_reader_behind_a_writer_that_waits_for_the_outer_one_is_told() {
    test(async {
        let world = World::new();
        world.registry.install("other", world.memory.clone()).unwrap();
        let by_other = |mode| world.lock("k").backend("other").mode(mode).wait(LONG);
        let (writer, reader) = (by_other(Mode::Write), by_other(Mode::Read));
        let outer = world.lock("k").mode(Mode::Read).run(|_| async {
            let waits = tokio::spawn(async move { writer.acquire().await.unwrap().release().await });
            calm().await;
            (reader.acquire().await.map(drop), waits)
        });
        let (refused, waits) = world.pass_until(SECOND / 10, outer).await.unwrap();
        assert_eq!(refused.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
        world.pass_until(SECOND / 10, waits).await.unwrap().unwrap();
        // A reader that nobody keeps waiting shares the lock with the enclosing call.
        let reader = by_other(Mode::Read);
        world.lock("k").mode(Mode::Read).run(|_| reader.acquire()).await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn two_sibling_tasks_of_a_body_wait_for_each_other() {
    test(async {
        let world = World::new();
        let body = |_| async {
            tokio::task::yield_now().await;
        };
        let (one, other) = tokio::join!(world.lock("k").wait(LONG).run(body), world.lock("k").wait(LONG).run(body));
        one.unwrap();
        other.unwrap();
        // Also as siblings within a body, on a key of their own.
        let (one, other) = (world.lock("b").wait(LONG), world.lock("b").wait(LONG));
        let outer = world.lock("a").run(|_| async { tokio::join!(one.run(body), other.run(body)) });
        let (one, other) = outer.await.unwrap();
        one.unwrap();
        other.unwrap();
    });
}

#[test]
fn a_child_task_that_inherits_is_the_same_holder() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").wait(LONG);
        let body = |held: Held| async move {
            let child = async move {
                let seen = current().map(|current| current.fence().unwrap());
                tokio::task::yield_now().await;
                (seen, inner.acquire().await)
            };
            let (seen, asked) = tokio::spawn(inherit(child)).await.unwrap();
            assert_eq!(seen, Some(held.fence().unwrap()));
            asked
        };
        would_deadlock(world.lock("k").run(body).await.unwrap());
    });
}

#[test]
fn a_child_task_that_does_not_inherit_is_another_caller_and_waits() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").wait(dlock_runtime::Wait::UpTo(5 * SECOND));
        let body = |_| async move {
            let child = async move {
                assert!(current().is_none());
                inner.acquire().await
            };
            tokio::spawn(child).await.unwrap()
        };
        let asked = world.pass_until(SECOND / 10, world.lock("k").run(body)).await.unwrap();
        assert_eq!(asked.unwrap_err().kind(), &ErrorKind::WaitTimeout);
    });
}

/// An inherited hold that has ended is no reason to refuse, because waiting would not deadlock.
#[test]
fn a_child_task_that_outlives_the_hold_may_take_the_lock() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").wait(LONG);
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let child = world
            .lock("k")
            .run(|_| async move {
                tokio::spawn(inherit(async move {
                    let _ = gone.await;
                    inner.acquire().await
                }))
            })
            .await
            .unwrap();
        go.send(()).unwrap();
        child.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_nested_call_that_has_to_give_way_does_so_at_once() {
    test(async {
        let world = World::with(&Clock::manual(), |offers| offers.settle = true);
        world.registry.install("other", dlock_memory::Memory::with_clock(&world.clock)).unwrap();
        let elsewhere = world.lock("k").backend("other");
        let (middle, inner) = (world.lock("middle"), world.lock("inner").wait(LONG));
        let outer = world.lock("outer").run(|_| {
            elsewhere.run(|_| async {
                let world = &world;
                let inside = middle.run(|_| async move {
                    world.store.always(Op::Acquire, Step::GiveWay);
                    inner.acquire().await.unwrap_err()
                });
                inside.await
            })
        });
        let error = outer.await.unwrap().unwrap().unwrap();
        assert_eq!(error.kind(), &ErrorKind::Conflict);
        assert!(error.to_string().contains("inside of 2"), "only the holds of this store count: {error}");
        assert_eq!((error.key(), error.is_retryable()), (Some(full("inner").as_str()), true));
        calm().await;
        world.empty().await;
        // A call without enclosing holds waits on.
        let alone = world.lock("inner").wait(Wait::UpTo(SECOND)).acquire();
        assert_eq!(world.pass_until(SECOND / 10, alone).await.unwrap_err().kind(), &ErrorKind::WaitTimeout);
    });
}

/// Notes under which lock it is dropped.
struct Noting(Arc<Mutex<Option<LockKey>>>);

impl Drop for Noting {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = current().map(|held| held.key().clone());
    }
}

#[test]
fn a_cancelled_body_is_dropped_inside_of_its_own_lock() {
    test(async {
        let world = World::new();
        let seen = Arc::new(Mutex::new(None));
        let (inner, noting) = (world.lock("inner"), Noting(seen.clone()));
        let body = |outer: Held| async move {
            let run = inner.run(|_| async move {
                let _noting = noting;
                std::future::pending::<()>().await;
            });
            assert!(run.now_or_never().is_none(), "it is polled once, and dropped");
            assert_eq!(current().unwrap().key(), outer.key());
        };
        world.lock("outer").run(body).await.unwrap();
        assert_eq!(seen.lock().unwrap().take(), Some(full("inner")));
        calm().await;
        freed(&world, "inner").await;
    });
}

#[test]
fn a_panic_inside_leaves_no_enclosing_call_behind() {
    test(async {
        let world = World::new();
        let run = world.lock("k").run(|_| async { panic!("inside") });
        let caught = std::panic::AssertUnwindSafe(run).catch_unwind().await;
        assert!(caught.is_err());
        assert!(current().is_none());
        calm().await;
        world.empty().await;
        freed(&world, "k").await;
    });
}
