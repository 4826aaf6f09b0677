//! Passing a hold on inside of one process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use dlock_runtime::{Clock, Cohort, ErrorKind, Guard, Lock, LossCause, Renew, Result};
use tokio::task::JoinHandle;

use crate::acquire::neighbours;
use crate::support::{LONG, MS, Op, SECOND, World, calm, held_and_awaited, poll_once, test};

const COHORT: Cohort = Cohort { passes: 8, span: None };

pub(crate) fn member(world: &World) -> Lock {
    world.lock("k").wait(LONG).ttl(30 * SECOND).cohort(Some(COHORT))
}

pub(crate) fn waits(lock: Lock) -> JoinHandle<Result<Guard>> {
    tokio::spawn(lock.acquire())
}

/// The second holder of a cohort, with a token left for the third caller, which waits. The span is far off.
pub(crate) async fn second_of_three(world: &World) -> (Guard, JoinHandle<Result<Guard>>) {
    let lock = || member(world).cohort(Some(Cohort { passes: 8, span: Some(60 * SECOND) }));
    let first = lock().acquire().await.unwrap();
    let (second, third) = (waits(lock()), waits(lock()));
    calm().await;
    // Two tokens are reserved for the two waiters.
    first.release().await.unwrap();
    (second.await.unwrap().unwrap(), third)
}

/// Holds once others wait, and gives the token.
fn work(world: &World, seen: &Arc<Mutex<Vec<u64>>>) -> JoinHandle<()> {
    let (lock, seen) = (member(world), seen.clone());
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        seen.lock().unwrap().push(guard.fence().unwrap().get());
        tokio::task::yield_now().await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    })
}

async fn all(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn the_store_is_asked_once_for_many_callers_of_a_cohort() {
    test(async {
        let (world, seen) = (World::new(), Arc::default());
        all((0..40).map(|_| work(&world, &seen)).collect::<Vec<_>>()).await;
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 40);
        assert!(seen.is_sorted_by(|one, next| one < next), "each has a token of its own: {seen:?}");
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Release)), (1, 1));
        assert!(world.store.calls(Op::Reserve) <= 5, "{}", world.store.calls(Op::Reserve));
        assert!(world.memory.is_empty());
    });
}

/// A counter that ran ahead of the clock could not be set up again from it.
#[test]
fn a_block_of_tokens_that_was_not_used_up_does_not_grow() {
    test(async {
        let world = World::new();
        let lock = || member(&world).cohort(Some(Cohort { passes: u32::MAX, span: Some(SECOND) }));
        let mut held = lock().acquire().await.unwrap();
        let first = held.fence().unwrap().get();
        let mut waiting: VecDeque<_> = (0..3).map(|_| waits(lock())).collect();
        for _ in 0..40 {
            // Longer than the span: the store is asked at each pass whether others wait.
            world.pass(2 * SECOND).await;
            held.release().await.unwrap();
            waiting.push_back(waits(lock()));
            held = waiting.pop_front().unwrap().await.unwrap().unwrap();
        }
        assert_eq!(world.store.calls(Op::Reserve), 40);
        let tokens = held.fence().unwrap().get() - first;
        assert!(tokens < 200, "{tokens} tokens for 40 passes");
    });
}

#[test]
fn a_block_has_1024_tokens_at_most() {
    test(async {
        let world = World::new();
        let lock = || member(&world).cohort(Some(Cohort { passes: u32::MAX, span: None }));
        let first = lock().acquire().await.unwrap();
        let token = first.fence().unwrap().get();
        let mut waiting: Vec<_> = (0..1500).map(|_| Box::pin(lock().acquire())).collect();
        for one in &mut waiting {
            assert!(poll_once(one).is_pending());
        }
        first.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Reserve), 1);
        drop(waiting);
        world.empty().await;
        let next = world.lock("k").wait(LONG).acquire().await.unwrap();
        assert_eq!(next.fence().unwrap().get() - token, 1024 + 1);
    });
}

#[test]
fn a_cohort_is_off_unless_asked_for() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let others: Vec<_> = (0..3).map(|_| tokio::spawn(world.lock("k").wait(LONG).run(async |_| ()))).collect();
        calm().await;
        held.release().await.unwrap();
        for other in others {
            other.await.unwrap().unwrap();
        }
        let asked = world.store.calls(Op::Acquire) + world.store.calls(Op::Carry);
        assert_eq!((asked, world.store.calls(Op::Reserve)), (4, 0));
    });
}

#[test]
fn each_caller_of_a_cohort_has_its_own_token_ttl_and_events() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        let token = first.fence().unwrap().get();
        first.release().await.unwrap();
        let second = second.await.unwrap().unwrap();
        assert!(second.fence().unwrap().get() > token);
        assert!(second.remaining() > 29 * SECOND, "{:?}", second.remaining());
        assert_eq!(world.events.names(), ["Acquired", "Released", "Acquired"]);
        // The renewal schedule knows it.
        world.pass(100 * SECOND).await;
        second.check().unwrap();
        second.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn another_process_gets_the_lock_after_the_number_of_passes_of_a_cohort() {
    test(async {
        let (world, other) = neighbours();
        let first = member(&world).acquire().await.unwrap();
        let seen = Arc::default();
        let members: Vec<_> = (0..30).map(|_| work(&world, &seen)).collect();
        calm().await;
        let strange = waits(other.lock("k").wait(LONG));
        calm().await;
        first.release().await.unwrap();
        let strange = strange.await.unwrap().unwrap();
        // The waiters of the first block, and no more.
        assert_eq!(seen.lock().unwrap().len(), 8);
        strange.release().await.unwrap();
        all(members).await;
        assert!(world.memory.is_empty());
    });
}

#[test]
fn another_process_gets_the_lock_after_the_time_of_a_cohort() {
    test(async {
        let (world, other) = neighbours();
        let first = member(&world).acquire().await.unwrap();
        let next = waits(member(&world));
        let strange = waits(other.lock("k").wait(LONG));
        calm().await;
        world.pass(3 * SECOND + 100 * MS).await;
        first.release().await.unwrap();
        calm().await;
        assert!(!next.is_finished(), "a tenth of the ttl is over, and others wait");
        strange.await.unwrap().unwrap().release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn no_caller_of_a_cohort_gets_less_than_half_of_its_ttl() {
    test(async {
        let world = World::new();
        let bounds = Cohort { passes: 8, span: Some(60 * SECOND) };
        let lock = || member(&world).cohort(Some(bounds)).renew(Renew::Every(20 * SECOND));
        let first = lock().acquire().await.unwrap();
        let (second, third) = (waits(lock()), waits(lock()));
        calm().await;
        first.release().await.unwrap();
        let second = second.await.unwrap().unwrap();
        world.pass(16 * SECOND).await;
        assert!(second.remaining() < 15 * SECOND);
        second.release().await.unwrap();
        let third = third.await.unwrap().unwrap();
        assert!(third.remaining() > 29 * SECOND, "{:?}", third.remaining());
        third.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 1);
    });
}

#[test]
fn a_cohort_passes_the_hold_only_to_a_caller_with_the_same_options() {
    test(async {
        for other in [
            |lock: Lock| lock.cohort(None),
            |lock: Lock| lock.ttl(20 * SECOND),
            |lock: Lock| lock.cohort(None).fair(true),
            |lock: Lock| lock.cohort(None).renew(Renew::Off),
        ] {
            let world = World::new();
            let (first, second) = held_and_awaited(member(&world), other(member(&world))).await;
            first.release().await.unwrap();
            second.await.unwrap().unwrap().release().await.unwrap();
            assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Reserve)), (2, 0));
        }
    });
}

#[test]
fn a_dropped_guard_passes_the_hold_on_too() {
    test(async {
        let world = World::new();
        let (first, second) = held_and_awaited(member(&world), member(&world)).await;
        drop(first);
        second.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 1);
        world.empty().await;
    });
}

/// The record says which caller ran, since when and for how long.
#[test]
fn a_run_that_is_recorded_is_neither_passed_on_nor_passed_to() {
    test(async {
        let world = World::new();
        for recorded in [[true, false], [false, true], [true, true]] {
            let lock = |n: usize| member(&world).name(["first", "second"][n]).record(recorded[n]);
            let mut began = [world.clock.wall_ms(); 2];
            let first = lock(0).acquire().await.unwrap();
            let second = waits(lock(1));
            world.pass(SECOND).await;
            began[1] = world.clock.wall_ms();
            first.release().await.unwrap();
            let second = second.await.unwrap().unwrap();
            world.pass(2 * SECOND).await;
            second.release().await.unwrap();
            let told = world.lock("k").last_success().await.unwrap().unwrap();
            let last = usize::from(recorded[1]);
            assert_eq!((told.note.site(), told.took), (Some(["first", "second"][last]), [1, 2][last] * SECOND));
            assert_eq!(told.started, UNIX_EPOCH + Duration::from_millis(began[last]));
            assert!(world.memory.is_empty());
        }
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Reserve)), (6, 0));
    });
}

#[test]
fn max_hold_counts_for_each_caller_of_a_cohort() {
    test(async {
        let world = World::new();
        let lock = || member(&world).max_hold(40 * SECOND).cohort(Some(Cohort { passes: 8, span: Some(60 * SECOND) }));
        let first = lock().acquire().await.unwrap();
        let (second, third) = (waits(lock()), waits(lock()));
        world.pass(30 * SECOND).await;
        first.release().await.unwrap();
        let second = second.await.unwrap().unwrap();
        world.pass(7 * SECOND).await;
        // The third one gets it without a request: the store has confirmed it when the second one began.
        second.release().await.unwrap();
        let third = third.await.unwrap().unwrap();
        world.pass(39 * SECOND).await;
        third.check().unwrap();
        world.pass(SECOND).await;
        assert_eq!(third.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::MaxHold));
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Reserve)), (1, 1));
    });
}

#[test]
fn a_holder_of_a_cohort_does_not_count_as_a_waiter() {
    test(async {
        let (world, other) = neighbours();
        let (held, first) = held_and_awaited(other.lock("k"), member(&world)).await;
        held.release().await.unwrap();
        let first = first.await.unwrap().unwrap();
        let second = waits(member(&world).max_waiters(1));
        calm().await;
        assert!(!second.is_finished());
        first.release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_cohort_is_refused_for_locks_that_cannot_be_passed_on() {
    test(async {
        let world = World::new();
        for bad in [
            |lock: Lock| lock.fair(true),
            |lock: Lock| lock.mode(dlock_runtime::Mode::Read),
            |lock: Lock| lock.min_hold(SECOND),
            |lock: Lock| lock.renew(Renew::Off),
            |lock: Lock| lock.cohort(Some(Cohort { passes: 0, span: None })),
        ] {
            let error = bad(member(&world)).acquire().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "cohort".into() });
        }
        let world = World::with(&Clock::manual(), |caps| caps.tokens = false);
        let error = member(&world).acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
        assert_eq!(world.store.calls(Op::Acquire), 0);
    });
}
