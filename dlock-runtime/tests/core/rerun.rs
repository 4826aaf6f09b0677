//! `rerun`: which runs of a period are started again, and when. One that panicked has failed; one that was cancelled or
//! dropped is free at once; that of a process that died, once its lease has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dlock_runtime::{Error, ErrorKind, Lock, Wait};
use futures::FutureExt;

use crate::acquire::neighbours;
use crate::periods::{again, once, to_next_period, world};
use crate::support::{LONG, MS, SECOND, World, calm, full, poll_once, test};

/// Asks for the run as another node does, which does not wait.
async fn from_elsewhere(stranger: &World) -> Result<(), Error> {
    again(stranger).wait(Wait::None).run(|_| async {}).await
}

/// Ends the first run of a period, and returns the answer to another node that would run it again.
async fn after(run: impl AsyncFnOnce(Lock)) -> Result<(), Error> {
    let (world, stranger) = neighbours();
    to_next_period(&world);
    run(again(&world)).await;
    world.empty().await;
    assert_eq!(once(&stranger).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun, "nobody else repeats it");
    assert_eq!(stranger.lock("k").last_success().await.unwrap(), None);
    from_elsewhere(&stranger).await
}

#[test]
fn a_run_that_panicked_has_failed_and_is_not_repeated() {
    test(async {
        let panicked = [
            after(async |lock| {
                assert!(tokio::spawn(lock.run(|_| async { panic!("on purpose") })).await.unwrap_err().is_panic());
            })
            .await,
            after(async |lock| {
                let body = |_| async {
                    tokio::task::yield_now().await;
                    panic!("on purpose")
                };
                // The future outlives the panic, and is dropped by a thread that knows nothing of it.
                let mut run = Box::pin(AssertUnwindSafe(lock.run(body)).catch_unwind());
                assert!((&mut run).await.is_err());
                calm().await;
                drop(run);
            })
            .await,
            after(async |lock| {
                // Even before it gives its future.
                let run = AssertUnwindSafe(lock.run(|_| -> std::future::Ready<()> { panic!("on purpose") }));
                assert!(run.catch_unwind().await.is_err());
            })
            .await,
            after(async |lock| {
                let guard = lock.acquire().await.unwrap();
                let task = tokio::spawn(async move {
                    let _guard = guard;
                    panic!("on purpose")
                });
                assert!(task.await.unwrap_err().is_panic());
            })
            .await,
        ];
        for told in panicked {
            assert_eq!(told.unwrap_err().kind(), &ErrorKind::AlreadyRun);
        }
    });
}

#[test]
fn a_plain_body_that_panicked_has_failed_too() {
    let world = world();
    let panics = || again(&world).run_blocking(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let next = again(&world).wait(Wait::UpTo(10 * SECOND)).run_blocking(|_| ());
    assert_eq!(next.unwrap_err().kind(), &ErrorKind::AlreadyRun);
}

#[test]
fn a_run_that_was_cancelled_or_dropped_is_free_at_once() {
    test(async {
        let free = [
            after(async |lock| {
                let mut run = Box::pin(lock.run(|_| std::future::pending::<()>()));
                assert!(poll_once(&mut run).is_pending());
                drop(run);
            })
            .await,
            after(async |lock| {
                let task = tokio::spawn(lock.run(|_| std::future::pending::<()>()));
                calm().await;
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            })
            .await,
            after(async |lock| drop(lock.acquire().await.unwrap())).await,
            after(async |lock| {
                // Of a caller that panics, while the body itself only waits.
                let mut run = Box::pin(lock.run(|_| std::future::pending::<()>()));
                assert!(poll_once(&mut run).is_pending());
                let caller = AssertUnwindSafe(move || {
                    let _run = run;
                    panic!("on purpose")
                });
                assert!(catch_unwind(caller).is_err());
            })
            .await,
        ];
        free.into_iter().for_each(|told| told.unwrap());
    });
}

#[test]
fn the_run_of_a_process_that_died_is_free_once_its_lease_has_ended() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        let guard = again(&world).ttl(30 * SECOND).acquire().await.unwrap();
        // Like a dead process: nobody renews the hold, and nobody releases it.
        world.store.always(crate::support::Op::Renew, crate::support::Step::Fail);
        std::mem::forget(guard);
        world.clock.advance(29 * SECOND);
        assert_eq!(from_elsewhere(&stranger).await.unwrap_err().kind(), &ErrorKind::Busy);
        world.clock.advance(SECOND + 100 * MS);
        from_elsewhere(&stranger).await.unwrap();
    });
}

#[test]
fn a_run_whose_guard_is_released_has_succeeded() {
    test(async {
        let world = world();
        again(&world).acquire().await.unwrap().release().await.unwrap();
        assert!(world.lock("k").last_success().await.unwrap().is_some());
        assert_eq!(again(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
    });
}

#[test]
fn a_waiter_for_a_run_hears_of_its_panic() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        let (panics, is_told) = tokio::sync::oneshot::channel::<()>();
        let body = |_| async move {
            let _ = is_told.await;
            panic!("on purpose")
        };
        let running = tokio::spawn(again(&world).run(body));
        calm().await;
        let waiting = tokio::spawn(again(&stranger).wait(LONG).run(|_| async { panic!("a second run") }));
        calm().await;
        panics.send(()).unwrap();
        assert!(running.await.unwrap_err().is_panic());
        // The clock stands still, so it has not waited for another end.
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), &ErrorKind::AlreadyRun);
        assert!(!world.lock("k").is_locked().await.unwrap(), "{:?}", full("k"));
    });
}
