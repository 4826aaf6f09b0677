//! The cleanup in the store after an acquisition that fails.

use dlock_runtime::{Clock, ErrorKind, Wait};

use crate::acquire::neighbours;
use crate::periods::{again, once, to_next_period};
use crate::support::{LONG, Op, SECOND, Step, World, calm, test, until};

async fn abandoned(world: &World, times: usize) {
    until("the last abandon", || world.store.calls(Op::Abandon) >= times).await;
    calm().await;
    assert_eq!(world.store.calls(Op::Abandon), times);
}

/// Its place in the store's queue may still be there.
#[test]
fn an_abandon_that_fails_before_the_error_is_returned_is_tried_again_after_it() {
    test(async {
        let (world, stranger) = neighbours();
        let _held = stranger.lock("k").acquire().await.unwrap();
        world.store.next(Op::Abandon, [Step::Fail]);
        let asked = world.lock("k").wait(Wait::UpTo(SECOND)).acquire();
        let error = world.pass_until(SECOND / 10, asked).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
        abandoned(&world, 2).await;
        // One that is answered is not asked for again.
        let asked = world.lock("k").wait(Wait::UpTo(SECOND)).acquire();
        world.pass_until(SECOND / 10, asked).await.unwrap_err();
        abandoned(&world, 3).await;
    });
}

/// The answer to the last attempt says nothing of the attempts before it.
#[test]
fn a_caller_that_has_waited_for_another_run_leaves_nothing() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        let run = once(&stranger).acquire().await.unwrap();
        let waiting = tokio::spawn(again(&world).wait(LONG).acquire());
        calm().await;
        run.release().await.unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::AlreadyRun, 2));
        abandoned(&world, 1).await;
    });
}

/// The connection that a request has used is on our thread then.
#[test]
fn a_claim_has_no_origin_where_requests_run_on_our_thread() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.runs_on = dlock_contract::RunsOn::OwnThread);
        world.store.next(Op::Acquire, [Step::LostReply]);
        let asks = tokio::spawn(world.lock("k").wait(LONG).acquire());
        until("it was granted", || !world.memory.is_empty()).await;
        asks.abort();
        abandoned(&world, 1).await;
        assert_eq!(world.store.abandoned(), [None]);
    });
}
