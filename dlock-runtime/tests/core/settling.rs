//! Stores where the end of a hold decides the result: the body's work is made final between the body and the release.

use std::future::pending;

use dlock_runtime::{Clock, Error, ErrorKind, OnLost, Result};

use crate::support::{MS, Op, SECOND, Step, World, calm, freed, full, test};

fn world() -> World {
    World::with(&Clock::manual(), |offers| offers.settle = true)
}

/// A body that works in its hold and ends so.
async fn work(world: &World, end: Result<u32>) -> Result<u32> {
    world.store.work(&full("k"));
    end
}

fn failed() -> Error {
    Error::new(ErrorKind::Internal, "of the body")
}

#[test]
fn work_is_made_final_once_and_before_the_release() {
    test(async {
        let world = world();
        world.store.next(Op::Release, [Step::Fail]);
        let done = world.lock("k").run_fallible(|_| work(&world, Ok(7))).await;
        assert_eq!(done.unwrap(), 7, "the work is final, so a failed release is none of the caller's concern");
        assert_eq!((world.store.settled(), world.store.calls(Op::Settle)), (vec![full("k")], 1));
        world.empty().await;
        world.events.expect("Released", 1).await;
    });
}

#[test]
fn work_of_a_body_that_failed_is_not_made_final() {
    test(async {
        let world = world();
        let done = world.lock("k").run_fallible(|_| work(&world, Err(failed()))).await;
        assert_eq!(*done.unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(world.store.calls(Op::Settle), 0);
        freed(&world, "k").await;
    });
}

#[test]
fn a_hold_without_work_and_a_store_without_the_power_settle_nothing() {
    test(async {
        let world = world();
        world.lock("k").run(|_| async {}).await.unwrap();
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
        let plain = World::new();
        plain.lock("k").run_fallible(|_| work(&plain, Ok(1))).await.unwrap();
        assert_eq!((world.store.calls(Op::Settle), plain.store.calls(Op::Settle)), (0, 0));
    });
}

#[test]
fn a_refusal_turns_the_result_into_an_error() {
    test(async {
        let world = world();
        world.store.next(Op::Settle, [Step::Refuse]);
        let error = world.lock("k").run_fallible(|_| work(&world, Ok(7))).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::CommitRefused, Some(full("k").as_str())));
        freed(&world, "k").await;
        world.events.expect("NotSettled", 1).await;
    });
}

#[test]
fn an_unknown_outcome_turns_the_result_into_an_error() {
    test(async {
        let world = world();
        for step in [Step::Fail, Step::Hang, Step::LostReply] {
            world.store.next(Op::Settle, [step]);
            let call = world.lock("k").run_fallible(|_| work(&world, Ok(7)));
            let error = world.pass_until(100 * MS, call).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::CommitUnknown, "{step:?}");
            freed(&world, "k").await;
        }
    });
}

#[test]
fn a_call_that_cannot_see_how_its_body_ended_undoes_the_work_and_says_so() {
    test(async {
        let world = world();
        let error = world.lock("k").run(|_| work(&world, Err(failed()))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::CommitRefused);
        assert!(error.to_string().contains("run_fallible"), "{error}");
        assert_eq!(world.store.calls(Op::Settle), 0);
        freed(&world, "k").await;
    });
}

#[test]
fn a_guard_makes_work_final_by_its_release_and_undoes_it_by_its_drop() {
    test(async {
        let world = world();
        world.store.work(&full("k"));
        drop(world.lock("k").acquire().await.unwrap());
        world.empty().await;
        assert_eq!(world.store.calls(Op::Settle), 0);
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Settle), 1);
        world.store.next(Op::Settle, [Step::Refuse]);
        let error = world.lock("k").acquire().await.unwrap().release().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::CommitRefused);
        freed(&world, "k").await;
    });
}

#[test]
fn a_blocking_release_makes_work_final() {
    let world = World::with(&Clock::system(), |offers| offers.settle = true);
    world.store.work(&full("k"));
    let guard = world.registry.lock("k").acquire_blocking().unwrap();
    guard.release_blocking().unwrap();
    world.store.next(Op::Settle, [Step::Refuse]);
    let error = world.registry.lock("k").acquire_blocking().unwrap().release_blocking().unwrap_err();
    assert_eq!((error.kind(), world.store.calls(Op::Settle)), (&ErrorKind::CommitRefused, 2));
    let guards = world.registry.lock_all(["k"]).acquire_blocking().unwrap();
    guards.release_blocking().unwrap();
    assert_eq!(world.store.calls(Op::Settle), 3);
}

#[test]
fn work_is_undone_where_the_body_does_not_come_to_its_end() {
    test(async {
        let world = world();
        let endless = async |held: dlock_runtime::Held| {
            world.store.work(held.key());
            pending::<Result<()>>().await
        };
        // Its own limit.
        let call = world.lock("k").timeout(SECOND).run_fallible(endless);
        let error = world.pass_until(100 * MS, call).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::BodyTimeout);
        // Its caller has gone.
        let mut call = Box::pin(world.lock("k").run_fallible(endless));
        assert!(futures::poll!(&mut call).is_pending());
        calm().await;
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        world.empty().await;
        // A loss.
        let call = world.lock("k").ttl(SECOND).max_hold(2 * SECOND).run_fallible(endless);
        assert!(world.pass_until(100 * MS, call).await.unwrap_err().is_lost());
        // A panic.
        let panics = async |held: dlock_runtime::Held| -> Result<()> {
            world.store.work(held.key());
            panic!("of the body")
        };
        let call = std::panic::AssertUnwindSafe(world.lock("k").run_fallible(panics));
        assert!(futures::FutureExt::catch_unwind(call).await.is_err());
        world.empty().await;
        assert_eq!(world.store.calls(Op::Settle), 0);
    });
}

#[test]
fn work_is_undone_after_a_loss_although_the_body_goes_on() {
    test(async {
        let world = world();
        let body = async |_: dlock_runtime::Held| {
            world.store.work(&full("k"));
            world.clock.sleep_until(world.clock.now().after(5 * SECOND)).await;
            Ok::<_, Error>(7)
        };
        let call = world.lock("k").ttl(SECOND).max_hold(2 * SECOND).on_lost(OnLost::Continue).run_fallible(body);
        assert!(world.pass_until(100 * MS, call).await.unwrap_err().is_lost());
        world.empty().await;
        assert_eq!(world.store.calls(Op::Settle), 0);
    });
}

#[test]
fn a_caller_that_goes_away_in_between_leaves_nothing() {
    test(async {
        let world = world();
        world.store.next(Op::Settle, [Step::Hang]);
        let mut call = Box::pin(world.lock("k").run_fallible(|_| work(&world, Ok(7))));
        while world.store.calls(Op::Settle) == 0 {
            assert!(futures::poll!(&mut call).is_pending());
            calm().await;
        }
        drop(call);
        world.empty().await;
        assert_eq!(world.store.calls(Op::Settle), 1);
    });
}

#[test]
fn of_several_keys_the_rest_is_undone_once_one_is_refused() {
    test(async {
        let world = world();
        ["a", "b", "c"].iter().for_each(|key| world.store.work(&full(key)));
        let guards = world.registry.lock_all(["a", "b", "c"]).acquire().await.unwrap();
        guards.release().await.unwrap();
        assert_eq!(world.store.settled(), ["c", "b", "a"].map(full));
        world.store.next(Op::Settle, [Step::Pass, Step::Refuse]);
        let guards = world.registry.lock_all(["a", "b", "c"]).acquire().await.unwrap();
        let error = guards.release().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::CommitRefused, Some(full("b").as_str())));
        assert_eq!(world.store.calls(Op::Settle), 5, "the last one was not asked for");
        world.empty().await;
    });
}

#[test]
fn a_call_that_joins_a_hold_leaves_its_work_to_the_outer_call() {
    test(async {
        let world = world();
        let inner = || world.lock("k").reentrant(true).run_fallible(|_| work(&world, Err(failed())));
        let outer = async |_: dlock_runtime::Held| {
            assert!(inner().await.is_err());
            assert_eq!(world.store.calls(Op::Settle), 0);
            Ok::<_, Error>(())
        };
        world.lock("k").run_fallible(outer).await.unwrap();
        assert_eq!(world.store.settled(), [full("k")]);
    });
}

#[test]
fn a_call_that_fails_beside_a_joined_hold_leaves_the_outer_work_alone() {
    test(async {
        let world = world();
        let outer = async |_: dlock_runtime::Held| {
            ["a", "b"].iter().for_each(|key| world.store.work(&full(key)));
            world.store.next(Op::Settle, [Step::Refuse]);
            let guards = world.registry.lock_all(["a", "b"]).reentrant(true).acquire().await.unwrap();
            assert_eq!(*guards.release().await.unwrap_err().kind(), ErrorKind::CommitRefused);
            Ok::<_, Error>(())
        };
        world.lock("a").run_fallible(outer).await.unwrap();
        assert_eq!(world.store.settled(), [full("a")], "the call has succeeded, so its work is final");
    });
}

#[test]
fn a_leader_whose_body_may_have_failed_undoes_the_work_and_says_so() {
    test(async {
        let world = world();
        let body = async |leader: dlock_runtime::Leader| {
            world.store.work(leader.key());
            Err::<(), _>(failed())
        };
        let error = world.registry.elect("billing").lead(body).await.unwrap_err();
        assert_eq!((error.kind(), world.store.calls(Op::Settle)), (&ErrorKind::CommitRefused, 0));
    });
}
