//! Passing a hold on while something else ends: the hold, the next caller, the registry, a request.

use std::pin::Pin;

use dlock_runtime::{Backoff, Clock, Cohort, Guard, Result, Retry};
use tokio::task::JoinHandle;

use crate::acquire::{neighbours, stranger};
use crate::cohort::{member, second_of_three, waits};
use crate::support::{
    LONG, MS, Op, SECOND, Step, World, calm, freed, full, held_and_awaited, is_free, poll_once, test, until,
};

#[test]
fn a_lost_hold_is_not_passed_on() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        world.memory.forget(&full("k"));
        let strange = stranger(&world).lock("k").acquire().await.unwrap();
        // The store says so when it is asked for tokens; the release then says it too.
        assert_eq!(first.release().await.unwrap_err().kind().as_str(), "lost");
        calm().await;
        assert!(!second.is_finished());
        strange.release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
    });
}

/// The hold has tokens and much of its ttl left, and is lost at once. It must not be passed on because of that.
#[test]
fn a_lost_hold_that_the_store_would_keep_is_not_passed_on() {
    test(async {
        let world = World::with(&Clock::manual(), |profile| profile.expires_alone = false);
        let lock = || world.lock("k").wait(LONG).cohort(Some(Cohort { passes: 64, span: Some(3600 * SECOND) }));
        let first = lock().acquire().await.unwrap();
        let behind = [(); 3].map(|()| waits(lock()));
        calm().await;
        first.release().await.unwrap();
        let [second, third, fourth] = behind;
        let second = second.await.unwrap().unwrap();
        assert_eq!(world.store.calls(Op::Reserve), 1);
        world.memory.forget(&full("k"));
        let strange = stranger(&world).lock("k").acquire().await.unwrap();
        second.confirm().await.unwrap_err();
        calm().await;
        assert!(!third.is_finished(), "the stranger has it");
        assert_eq!(world.store.calls(Op::Reserve), 1);
        strange.release().await.unwrap();
        for next in [third, fourth] {
            next.await.unwrap().unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_hold_that_ran_out_is_not_passed_on() {
    test(async {
        let world = World::new();
        world.store.always(Op::Renew, Step::Hang);
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        world.pass(31 * SECOND).await;
        let second = second.await.unwrap().unwrap();
        first.release().await.unwrap_err();
        calm().await;
        second.check().unwrap();
        assert!(!is_free(&stranger(&world), "k").await, "a late release frees nothing");
        assert_eq!(world.store.calls(Op::Reserve), 0);
        second.release().await.unwrap();
    });
}

#[test]
fn a_caller_that_is_gone_before_it_noticed_its_hold_releases_it() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let mut second = Box::pin(member(&world).acquire());
        assert!(poll_once(&mut second).is_pending());
        let third = waits(member(&world));
        calm().await;
        first.release().await.unwrap();
        drop(second);
        third.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
        freed(&world, "k").await;
    });
}

#[test]
fn without_an_answer_about_tokens_the_lock_is_released() {
    test(async {
        for step in [Step::Fail, Step::Refuse, Step::LostReply] {
            let world = World::new();
            let (first, second) = held_and_awaited(member(&world), member(&world)).await;
            world.store.next(Op::Reserve, [step]);
            drop(first);
            let second = world.pass_until(100 * MS, second).await.unwrap().unwrap();
            second.release().await.unwrap();
            assert_eq!(world.store.calls(Op::Acquire), 2, "{step:?}");
            world.empty().await;
        }
    });
}

/// A caller that is passed a hold needs time for its own first renewal.
#[test]
fn an_answer_about_tokens_that_took_half_of_the_ttl_passes_nothing_on() {
    test(async {
        let world = World::new();
        let lock = || member(&world).ttl(3 * SECOND);
        let (first, second) = held_and_awaited(lock(), lock()).await;
        world.store.next(Op::Reserve, [Step::Late(1600 * MS)]);
        let release = tokio::spawn(first.release());
        let second = world.pass_until(100 * MS, second).await.unwrap().unwrap();
        assert!(second.remaining() >= SECOND + 500 * MS, "{:?}", second.remaining());
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Reserve)), (2, 1));
        release.await.unwrap().unwrap();
        second.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_release_dropped_while_it_asks_for_tokens_is_done_anyway() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        world.store.next(Op::Reserve, [Step::Hang]);
        let mut release = Box::pin(first.release());
        assert!(poll_once(&mut release).is_pending());
        drop(release);
        second.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_shutdown_in_a_cohort_leaves_nothing() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        let registry = world.registry.clone();
        let down = tokio::spawn(async move { registry.shutdown(SECOND).await });
        calm().await;
        // Requests under way may end; no new one begins.
        first.release().await.unwrap();
        assert_eq!(second.await.unwrap().unwrap_err().kind().as_str(), "shut_down");
        let _ = world.pass_until(100 * MS, down).await;
        assert_eq!(world.store.calls(Op::Reserve), 0);
        world.empty().await;
    });
}

#[test]
fn a_shutdown_waits_for_a_hold_that_nobody_has_noticed() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let mut second = Box::pin(member(&world).acquire());
        assert!(poll_once(&mut second).is_pending());
        first.release().await.unwrap();
        let registry = world.registry.clone();
        let down = tokio::spawn(async move { registry.shutdown(60 * SECOND).await });
        calm().await;
        assert!(!down.is_finished(), "the hold is on its way");
        drop(second);
        world.pass_until(10 * MS, down).await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_hold_that_is_noticed_too_late_is_cleared_away() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let mut second = Box::pin(member(&world).acquire());
        assert!(poll_once(&mut second).is_pending());
        first.release().await.unwrap();
        world.pass(31 * SECOND).await;
        let second = second.await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (2, 1));
        second.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

/// One that has the turn, and has not looked at the hold that came with it until it was too late for its clock, and not
/// yet for the store's.
pub(crate) async fn late(world: &World) -> Pin<Box<impl Future<Output = Result<Guard>> + use<>>> {
    let first = member(world).acquire().await.unwrap();
    let mut second = Box::pin(member(world).acquire());
    assert!(poll_once(&mut second).is_pending());
    first.release().await.unwrap();
    world.clock.advance(29 * SECOND + 800 * MS);
    second
}

#[test]
fn a_hold_that_could_not_be_cleared_away_at_once_is_cleared_away_later() {
    test(async {
        let world = World::new();
        let second = late(&world).await;
        world.store.next(Op::Abandon, [Step::Fail]);
        let second = tokio::spawn(second);
        until("the lock is free", || second.is_finished()).await;
        assert_eq!(world.store.calls(Op::Abandon), 2);
        second.await.unwrap().unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_caller_that_is_gone_while_it_clears_away_leaves_nothing() {
    test(async {
        let world = World::new();
        let mut second = late(&world).await;
        world.store.next(Op::Abandon, [Step::Hang]);
        assert!(poll_once(&mut second).is_pending());
        assert_eq!(world.store.calls(Op::Abandon), 1);
        drop(second);
        // The turn waits for that, so no caller here sees contention.
        assert!(is_free(&world, "k").await);
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_release_waits_once_for_a_silent_store() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        world.store.always(Op::Reserve, Step::Hang);
        world.store.always(Op::Release, Step::Hang);
        let before = world.clock.now();
        let _ = world.pass_until(100 * MS, first.release()).await;
        let took = world.clock.now().since(before);
        assert!(took <= 2 * SECOND + 500 * MS, "{took:?}");
        second.abort();
    });
}

/// The next caller has the turn by then, and asks for itself. The request would only prolong the hold.
#[test]
fn a_release_that_lets_its_neighbours_go_first_asks_for_no_tokens() {
    test(async {
        let world = World::new();
        let lock = || member(&world).retry(Retry { times: 100, backoff: Some(Backoff::new(SECOND, SECOND)) });
        let (first, second) = held_and_awaited(lock(), lock()).await;
        let third = waits(lock());
        calm().await;
        // The store keeps failing, so releases wait for their time.
        world.store.always(Op::Acquire, Step::NeverSent);
        for _ in 0..5 {
            world.lock("other").try_acquire().await.unwrap_err();
            world.clock.advance(SECOND / 3);
        }
        drop(first);
        calm().await;
        assert_eq!(world.store.calls(Op::Release), 0);
        world.store.always(Op::Acquire, Step::Pass);
        let second = world.pass_until(SECOND / 10, second).await.unwrap().unwrap();
        assert_eq!((world.store.calls(Op::Release), world.store.calls(Op::Reserve)), (1, 0));
        second.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_renewal_under_way_is_not_passed_over() {
    test(async {
        let world = World::new();
        world.store.always(Op::Renew, Step::Hang);
        let (second, third) = second_of_three(&world).await;
        world.pass(11 * SECOND).await;
        assert!(world.store.calls(Op::Renew) > 0);
        second.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Reserve), 2, "what the renewal would find out is asked before the pass");
    });
}

/// The store may have prolonged the lock in a reservation whose answer was lost, so the old deadline is not its end.
#[test]
fn a_release_is_tried_for_as_long_as_the_lock_may_last() {
    test(async {
        let world = World::new();
        world.store.always(Op::Renew, Step::Hang);
        let first = member(&world).cohort(Some(Cohort { passes: 8, span: Some(60 * SECOND) })).acquire().await.unwrap();
        let second = waits(member(&world));
        world.pass(27 * SECOND).await;
        world.store.next(Op::Reserve, [Step::LostReply]);
        world.store.always(Op::Release, Step::Fail);
        drop(first);
        calm().await;
        second.abort();
        world.pass(10 * SECOND).await;
        assert!(!world.memory.is_empty(), "it was prolonged");
        world.store.always(Op::Release, Step::Pass);
        world.pass(10 * SECOND).await;
        assert!(world.memory.is_empty());
    });
}

/// The first block may be reserved although others wait. It says nothing about whether they do, so their time goes on.
#[test]
fn the_time_of_other_processes_does_not_begin_anew_with_the_first_block() {
    test(async {
        let (world, stranger) = neighbours();
        let first = member(&world).acquire().await.unwrap();
        let (second, third) = (waits(member(&world)), waits(member(&world)));
        let strange = waits(stranger.lock("k").wait(LONG));
        world.pass(SECOND).await;
        first.release().await.unwrap();
        let second = second.await.unwrap().unwrap();
        // A tenth of the ttl since the grant.
        world.pass(2 * SECOND + 100 * MS).await;
        second.release().await.unwrap();
        let strange = strange.await.unwrap().unwrap();
        assert!(!third.is_finished());
        strange.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
    });
}

/// Once the store has said that nobody else waits, it is not asked again for a while.
#[test]
fn the_store_is_asked_once_in_a_span_whether_others_wait() {
    test(async {
        let world = World::new();
        let mut held = member(&world).acquire().await.unwrap();
        let mut members: std::collections::VecDeque<_> = (0..8).map(|_| waits(member(&world))).collect();
        calm().await;
        let mut asked = Vec::new();
        for pause in [0, 4, 1, 1, 4, 1] {
            world.pass(pause * SECOND).await;
            held.release().await.unwrap();
            held = members.pop_front().unwrap().await.unwrap().unwrap();
            asked.push(world.store.calls(Op::Reserve));
        }
        assert_eq!(asked, [1, 2, 2, 2, 3, 3]);
        members.iter().for_each(JoinHandle::abort);
        held.release().await.unwrap();
    });
}
