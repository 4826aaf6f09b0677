//! The end of it all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_contract::Backend;
use dlock_memory::Memory;
use dlock_runtime::{ErrorKind, LossCause, Registry, Result};
use futures::TryFutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::acquire::neighbours;
use crate::periods::{once, to_next_period};
use crate::support::{Faulty, LONG, MS, Op, SECOND, Step, World, calm, freed, poll_once, test};

#[test]
fn an_idle_registry_ends_at_once() {
    test(async {
        let world = World::new();
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
        let report = world.registry.shutdown(60 * SECOND).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert_eq!(world.store.calls(Op::Close), 1);
    });
}

#[test]
fn at_a_shutdown_waiters_fail_at_once_and_holders_may_finish() {
    test(async {
        let (world, stranger) = neighbours();
        let foreign = stranger.lock("foreign").acquire().await.unwrap();
        let held = world.lock("k").acquire().await.unwrap();
        let waiters = ["k", "k", "foreign", "foreign"].map(|key| tokio::spawn(world.lock(key).wait(LONG).acquire()));
        calm().await;
        let registry = world.registry.clone();
        let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        }
        assert!(!shutdown.is_finished());
        held.check().unwrap();
        held.release().await.unwrap();
        let report = world.pass_until(10 * MS, shutdown).await.unwrap();
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        foreign.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

/// A caller whose request hangs in the store need not wait, because a grant would be useless.
#[test]
fn a_caller_in_the_middle_of_an_attempt_hears_of_a_shutdown_at_once() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::LostReply]);
        let waiter = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        let registry = world.registry.clone();
        let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        let report = world.pass_until(10 * MS, shutdown).await.unwrap();
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert!(world.memory.is_empty(), "what the lost reply had granted was abandoned before the end");
    });
}

/// Before it waits for a neighbour's turn, a call asks the store for the holds of enclosing calls.
#[test]
fn a_caller_that_looks_for_the_holds_of_other_names_hears_of_a_shutdown_at_once() {
    test(async {
        let world = World::new();
        let other = Faulty::around(&world.memory, &world.clock, |_| {});
        world.registry.install("other", other.clone()).unwrap();
        other.always(Op::Look, Step::Hang);
        let by_other = || world.lock("k").backend("other").wait(LONG);
        let (behind, go) = (by_other(), Arc::new(Notify::new()));
        let body = {
            let go = go.clone();
            |_| async move {
                go.notified().await;
                behind.acquire().await.map(drop)
            }
        };
        let outer = tokio::spawn(world.lock("k").run(body));
        calm().await;
        let neighbour = tokio::spawn(by_other().acquire());
        calm().await;
        go.notify_one();
        calm().await;
        assert_eq!(other.calls(Op::Look), 1);
        let registry = world.registry.clone();
        let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        for told in [outer.await.unwrap().unwrap(), neighbour.await.unwrap().map(drop)] {
            assert_eq!(told.unwrap_err().kind(), &ErrorKind::ShutDown);
        }
        let report = world.pass_until(10 * MS, shutdown).await.unwrap();
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    });
}

/// It had left the table of holds, and the end must still wait for its answer.
#[test]
fn a_shutdown_waits_for_a_release_under_way() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let release = tokio::spawn(guard.release());
        calm().await;
        let registry = world.registry.clone();
        let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        calm().await;
        assert!(!shutdown.is_finished());
        assert_eq!(world.store.calls(Op::Close), 0);
        let report = world.pass_until(10 * MS, shutdown).await.unwrap();
        release.await.unwrap().unwrap();
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
    });
}

#[test]
fn at_the_end_of_a_shutdown_bodies_are_dropped_and_their_locks_released() {
    test(async {
        let world = World::new();
        let body = || |_| std::future::pending::<()>();
        let bodies = ["a", "b"].map(|key| tokio::spawn(world.lock(key).run(body())));
        let guard = world.lock("c").acquire().await.unwrap();
        calm().await;
        let before = world.clock.now();
        let report = world.pass_until(100 * MS, world.registry.shutdown(5 * SECOND)).await;
        assert_eq!((report.cut_off, report.left_to_ttl, report.unconfirmed), (3, 1, 0));
        let took = world.clock.now().since(before);
        assert!(took >= 5 * SECOND && took <= 6 * SECOND, "{took:?}");
        for body in bodies {
            assert_eq!(body.await.unwrap().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Shutdown));
        }
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Shutdown));
        drop(guard);
        world.empty().await;
        world.events.expect("Lost", 3).await;
    });
}

#[test]
fn a_shutdown_counts_releases_that_the_store_did_not_confirm() {
    test(async {
        let world = World::new();
        world.store.always(Op::Release, Step::Hang);
        let _body = tokio::spawn(world.lock("k").run(|_| std::future::pending::<()>()));
        drop(world.lock("other").acquire().await.unwrap());
        calm().await;
        world.store.always(Op::Close, Step::Hang);
        let before = world.clock.now();
        let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
        assert_eq!((report.cut_off, report.unconfirmed), (1, 2));
        // The deadline, a moment for the last releases, and one for a store that does not close.
        assert!(world.clock.now().since(before) <= 3 * SECOND);
    });
}

#[test]
fn a_second_shutdown_is_harmless_and_nothing_works_afterwards() {
    test(async {
        let world = World::new();
        let _body = tokio::spawn(world.lock("k").run(|_| std::future::pending::<()>()));
        calm().await;
        world.pass_until(50 * MS, world.registry.shutdown(Duration::ZERO)).await;
        let report = world.pass_until(50 * MS, world.registry.shutdown(Duration::ZERO)).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert_eq!(world.store.calls(Op::Close), 1);
        let shut = |kind: &ErrorKind| assert_eq!(kind, &ErrorKind::ShutDown);
        shut(world.lock("k").acquire().await.unwrap_err().kind());
        shut(world.lock("k").backend("m").try_acquire().await.unwrap_err().kind());
        shut(world.lock("k").holders().await.unwrap_err().kind());
        shut(world.registry.install("n", Memory::new()).unwrap_err().kind());
        shut(
            world
                .registry
                .install_opened("n", async { unreachable!("the name is refused first") })
                .await
                .unwrap_err()
                .kind(),
        );
        shut(world.registry.set_default("m").unwrap_err().kind());
    });
}

#[test]
fn two_shutdowns_at_once_agree() {
    test(async {
        let world = World::new();
        let _body = tokio::spawn(world.lock("k").run(|_| std::future::pending::<()>()));
        calm().await;
        let both = async { tokio::join!(world.registry.shutdown(SECOND), world.registry.shutdown(SECOND)) };
        let (one, other) = world.pass_until(50 * MS, both).await;
        assert_eq!(one.cut_off + other.cut_off, 1);
        assert_eq!(world.store.calls(Op::Close), 1);
    });
}

#[test]
fn a_shutdown_that_is_given_up_can_be_called_again() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let mut first = Box::pin(world.registry.shutdown(3600 * SECOND));
        assert!(crate::support::poll_once(&mut first).is_pending());
        drop(first);
        guard.release().await.unwrap();
        let report = world.pass_until(50 * MS, world.registry.shutdown(SECOND)).await;
        assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
        assert_eq!(world.store.calls(Op::Close), 1);
    });
}

/// No body ran under it.
#[test]
fn a_grant_that_arrives_during_a_shutdown_is_released() {
    test(async {
        let (world, stranger) = neighbours();
        let registry = world.registry.clone();
        world.store.meanwhile(move || {
            // Its beginning: from here on nothing begins.
            let _ = poll_once(&mut Box::pin(registry.shutdown(Duration::ZERO)));
        });
        let error = world.lock("k").min_hold(5 * SECOND).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ShutDown);
        world.empty().await;
        freed(&stranger, "k").await;
    });
}

/// A store that is opened at its first use, and whose opening ends when the registry has ended.
#[test]
fn a_store_that_opens_after_the_shutdown_is_closed() {
    let world = World::new();
    let registry = Registry::new();
    let (may_open, opened) = (Arc::new(Notify::new()), Arc::new(world.store.clone()) as Arc<dyn Backend>);
    let waits = may_open.clone();
    let open = move |_| {
        let (may_open, opened) = (waits.clone(), opened.clone());
        async move {
            may_open.notified().await;
            Ok(opened)
        }
    };
    registry.install_lazy("main", open).unwrap();
    // In real time: it is opened on dlock's own thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut waiting = Box::pin(registry.lock("k").acquire());
        assert!(poll_once(&mut waiting).is_pending());
        registry.shutdown(Duration::ZERO).await;
        assert_eq!(*waiting.await.unwrap_err().kind(), ErrorKind::ShutDown);
        assert_eq!(world.store.calls(Op::Close), 0);
        may_open.notify_one();
        while world.store.calls(Op::Close) == 0 {
            tokio::time::sleep(MS).await;
        }
        assert_eq!(*registry.lock("k").acquire().await.unwrap_err().kind(), ErrorKind::ShutDown);
    });
}

/// The grant comes in the same moment as the shutdown. Its begin was not told, so no end is told, and it is undone once:
/// by an abandon, since a release would leave a period started in which no body has run.
#[test]
fn a_grant_that_a_shutdown_overtakes_is_abandoned() {
    type Way = fn(&World) -> BoxFuture<'static, Result<()>>;
    let ways: [Way; 3] = [
        |world| Box::pin(once(world).acquire().map_ok(drop)),
        |world| Box::pin(world.lock("k").acquire().map_ok(drop)),
        |world| Box::pin(world.registry.lock_all(["j", "k"]).acquire().map_ok(drop)),
    ];
    for acquire in ways {
        test(async move {
            let (world, stranger) = neighbours();
            to_next_period(&world);
            let registry = world.registry.clone();
            let shutdown = Arc::new(Mutex::new(None));
            let begun = shutdown.clone();
            world.store.meanwhile(move || {
                let mut shutdown: BoxFuture<'static, _> = Box::pin(async move { registry.shutdown(SECOND).await });
                assert!(poll_once(&mut shutdown).is_pending());
                *begun.lock().unwrap() = Some(shutdown);
            });
            let error = acquire(&world).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ShutDown);
            let shutdown = shutdown.lock().unwrap().take().unwrap();
            let report = world.pass_until(10 * MS, shutdown).await;
            assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
            assert!(world.memory.is_empty());
            once(&stranger).acquire().await.unwrap().release().await.unwrap();
            assert_eq!(world.store.calls(Op::Release), 0);
            assert!(!world.events.names().contains(&"Released".to_owned()), "{:?}", world.events.names());
        });
    }
}

/// Its caller is not polled, so nobody knows yet what it leaves in the store.
#[test]
fn a_shutdown_waits_for_a_caller_in_the_middle_of_an_attempt() {
    for keys in [&["k"][..], &["j", "k"]] {
        test(async move {
            let world = World::new();
            for op in [Op::Acquire, Op::Together] {
                world.store.always(op, Step::LostReply);
            }
            let mut asks = Box::pin(world.registry.lock_all(keys.iter().copied()).wait(LONG).acquire());
            assert!(poll_once(&mut asks).is_pending());
            let registry = world.registry.clone();
            let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
            world.pass(SECOND).await;
            assert!(!shutdown.is_finished());
            drop(asks);
            let report = world.pass_until(10 * MS, shutdown).await.unwrap();
            assert_eq!((report.cut_off, report.unconfirmed), (0, 0));
            assert!(world.memory.is_empty());
        });
    }
}

/// While others may finish, nothing new begins: no request, and no further use of a hold.
#[test]
fn a_call_during_a_shutdown_is_refused_at_once() {
    test(async {
        let world = World::new();
        let shutdown = world.lock("k").run(|_| async {
            let registry = world.registry.clone();
            let shutdown = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
            calm().await;
            for key in ["k", "other"] {
                let error = world.lock(key).reentrant(true).acquire().await.unwrap_err();
                assert_eq!((error.kind(), error.attempts()), (&ErrorKind::ShutDown, 0));
            }
            shutdown
        });
        world.pass_until(10 * MS, shutdown.await.unwrap()).await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 1);
    });
}
