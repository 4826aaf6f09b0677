//! Failures that pass while a caller waits, and those that the end of the wait hides.

use dlock_runtime::{ErrorKind, Key, Wait};

use crate::support::{LONG, Op, SECOND, Step, World, test};

#[test]
fn a_server_that_is_read_only_for_a_moment_is_asked_again_by_a_caller_that_waits() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::ReadOnly, Step::ReadOnly]);
        let guard = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 3);
        guard.release().await.unwrap();
        world.store.next(Op::Acquire, [Step::ReadOnly]);
        let error = world.lock("k").try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::NotPrimary, 1));
        // A list that is asked for in one request.
        world.store.next(Op::Together, [Step::ReadOnly]);
        let all = world.registry.lock_all(["a", "b"].map(Key::text)).wait(LONG).acquire();
        world.pass_until(SECOND / 10, all).await.unwrap().release().await.unwrap();
    });
}

/// The wait leaves the last attempt less time than an answer may take.
#[test]
fn a_short_wait_behind_a_holder_ends_as_that_and_not_as_an_outage() {
    test(async {
        let (world, stranger) = crate::acquire::polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        world.store.always(Op::Acquire, Step::Hang);
        for (wait, kind) in [(SECOND, ErrorKind::WaitTimeout), (12 * SECOND, ErrorKind::Outage)] {
            world.store.next(Op::Acquire, [Step::Pass]);
            let calls = world.store.calls(Op::Acquire);
            let asked = world.lock("k").wait(Wait::UpTo(wait)).acquire();
            let error = world.pass_until(SECOND / 100, asked).await.unwrap_err();
            assert_eq!(error.kind(), &kind, "{wait:?}: {error}");
            assert!(world.store.calls(Op::Acquire) > calls + 1, "it was not asked again");
        }
        held.release().await.unwrap();
    });
}

/// Its attempts are answered, so without the error it would poll until its wait ends.
#[test]
fn a_wait_that_is_refused_for_good_ends_the_call_and_leaves_nothing() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::RefusedSignal]);
        let error = world.lock("k").wait(Wait::Forever).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (1, 1));
        world.events.expect("Failed", 1).await;
    });
}
