//! Calls and releases that are not polled for long: what they have left is undone, and they go on when they are polled again.

use dlock_runtime::{Clock, ErrorKind};

use crate::acquire::stranger;
use crate::periods::{self, once};
use crate::support::{LONG, Op, SECOND, Step, World, calm, is_free, poll_once, test};
use crate::unpolled::{goes_on, polled_once};

/// What the store may have noted as its start is undone before it asks again.
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
            assert!(is_free(&stranger(&world), "k").await);
            let next = world.lock("k").acquire().await.unwrap();
            if let Some(releasing) = releasing {
                releasing.await.unwrap();
                world.events.expect("Released", 1).await;
            }
            calm().await;
            next.confirm().await.unwrap();
            next.release().await.unwrap();
            assert!(is_free(&world, "k").await);
        });
    }
}
