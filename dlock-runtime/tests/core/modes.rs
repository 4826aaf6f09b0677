//! The engine's side of lock modes and of keys that stay taken.

use std::num::NonZeroU32;
use std::time::Duration;

use dlock_contract::WakeStyle;
use dlock_runtime::{Backoff, ErrorKind, Lock, Mode, Retry, Wait};

use crate::acquire::neighbours;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, freed, full, held_and_awaited, poll_once, test};

fn permit(world: &World) -> Lock {
    world.lock("k").mode(Mode::Permits(NonZeroU32::new(3).unwrap()))
}

#[test]
fn two_readers_of_one_process_hold_at_once() {
    test(async {
        let world = World::new();
        let read = || world.lock("k").mode(Mode::Read);
        let (one, two) = (read().try_acquire().await.unwrap(), read().try_acquire().await.unwrap());
        assert!(two.fence().unwrap().get() > one.fence().unwrap().get());
        assert_eq!(one.slot(), None);
        let busy = world.lock("k").mode(Mode::Write).try_acquire().await.unwrap_err();
        assert_eq!(busy.kind(), &ErrorKind::Busy);
        one.release().await.unwrap();
        assert!(world.lock("k").mode(Mode::Write).try_acquire().await.is_err());
        two.check().unwrap();
        two.release().await.unwrap();
        world.lock("k").mode(Mode::Write).try_acquire().await.unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_reader_stands_behind_a_writer_of_another_process() {
    test(async {
        let (world, stranger) = neighbours();
        let (reader, writer) =
            held_and_awaited(world.lock("k").mode(Mode::Read), stranger.lock("k").mode(Mode::Write).wait(LONG)).await;
        let error = world.lock("k").mode(Mode::Read).try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Busy, 1), "the store said so");
        let late = tokio::spawn(world.lock("k").mode(Mode::Read).wait(LONG).acquire());
        calm().await;
        reader.release().await.unwrap();
        let writer = writer.await.unwrap().unwrap();
        calm().await;
        assert!(!late.is_finished());
        writer.release().await.unwrap();
        late.await.unwrap().unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn readers_are_renewed_and_end_each_by_itself() {
    test(async {
        let world = World::new();
        let read = || world.lock("k").mode(Mode::Read);
        let bounded = read().max_hold(60 * SECOND).acquire().await.unwrap();
        let kept = read().acquire().await.unwrap();
        world.pass(120 * SECOND).await;
        assert!(bounded.check().is_err());
        kept.check().unwrap();
        kept.confirm().await.unwrap();
        kept.release().await.unwrap();
        drop(bounded);
        world.empty().await;
    });
}

#[test]
fn permits_of_one_process_are_numbered_and_bounded() {
    test(async {
        let world = World::new();
        let mut held = Vec::new();
        for slot in 0..3 {
            let guard = permit(&world).try_acquire().await.unwrap();
            assert_eq!(guard.slot(), Some(slot));
            held.push(guard);
        }
        assert_eq!(permit(&world).try_acquire().await.unwrap_err().kind(), &ErrorKind::Busy);
        let next = tokio::spawn(permit(&world).wait(LONG).acquire());
        calm().await;
        held.remove(1).release().await.unwrap();
        assert_eq!(next.await.unwrap().unwrap().slot(), Some(1));
        drop(held);
        world.empty().await;
    });
}

#[test]
fn a_key_of_another_family_is_a_conflict_and_no_contention() {
    test(async {
        let (world, stranger) = neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        for lock in [permit(&world).wait(LONG), world.lock("k").mode(Mode::Read).wait(LONG)] {
            let error = lock.acquire().await.unwrap_err();
            assert_eq!((error.kind(), error.attempts()), (&ErrorKind::KeyConflict, 1));
            assert!(!error.is_retryable() && !error.is_contention(), "{error}");
        }
        world.events.expect("Failed", 2).await;
        calm().await;
        held.release().await.unwrap();
        permit(&world).acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_mode_that_the_store_cannot_do_is_refused_before_any_request() {
    test(async {
        let world = World::with(&dlock_runtime::Clock::manual(), |caps| {
            (caps.read_write, caps.permits, caps.keeps, caps.fair) = (false, false, false, false);
        });
        let lock = || world.lock("k");
        for lock in [
            lock().mode(Mode::Read),
            lock().mode(Mode::Write),
            permit(&world),
            lock().min_hold(SECOND),
            lock().fair(true),
        ] {
            assert_eq!(lock.acquire().await.unwrap_err().kind().as_str(), "unsupported");
        }
        assert_eq!(world.store.calls(Op::Acquire), 0);
    });
}

/// The release of another hold of the process could ask for the waiter. That of this hold has to keep its permit. The
/// simulation found it.
#[test]
fn the_release_of_a_permit_that_stays_taken_asks_for_no_waiter() {
    test(async {
        let world = World::new();
        let plain = [permit(&world).acquire().await.unwrap(), permit(&world).acquire().await.unwrap()];
        let kept = permit(&world).min_hold(5 * SECOND).acquire().await.unwrap();
        let mut next = Box::pin(permit(&world).wait(LONG).acquire());
        assert!(poll_once(&mut next).is_pending());
        kept.release().await.unwrap();
        calm().await;
        assert!(poll_once(&mut next).is_pending(), "its permit stays taken");
        assert_eq!((world.store.calls(Op::Carry), world.memory.len()), (0, 1));
        for plain in plain {
            plain.release().await.unwrap();
        }
        next.await.unwrap().release().await.unwrap();
        assert!(world.lock("k").is_locked().await.unwrap());
        world.pass(5 * SECOND).await;
        assert!(!world.lock("k").is_locked().await.unwrap());
    });
}

/// Kept for five seconds from the grant, of which `held` have passed.
async fn is_kept(world: &World, stranger: &World, held: Duration) {
    let lock = || stranger.lock("k");
    assert!(lock().is_locked().await.unwrap());
    world.pass(5 * SECOND - held - MS).await;
    assert_eq!(lock().try_acquire().await.unwrap_err().kind(), &ErrorKind::Busy);
    world.pass(MS).await;
    assert!(!lock().is_locked().await.unwrap());
    freed(stranger, "k").await;
}

#[test]
fn an_early_release_of_any_kind_keeps_the_key() {
    test(async {
        let (world, stranger) = neighbours();
        let lock = || world.lock("k").min_hold(5 * SECOND);
        lock().acquire().await.unwrap().release().await.unwrap();
        is_kept(&world, &stranger, Duration::ZERO).await;

        let guard = lock().acquire().await.unwrap();
        world.pass(2 * SECOND).await;
        drop(guard);
        calm().await;
        is_kept(&world, &stranger, 2 * SECOND).await;

        let panics = tokio::spawn(lock().run(|_| async { panic!("on purpose") }));
        assert!(panics.await.unwrap_err().is_panic());
        calm().await;
        is_kept(&world, &stranger, Duration::ZERO).await;

        let cancelled = tokio::spawn(lock().run(|_| std::future::pending::<()>()));
        calm().await;
        cancelled.abort();
        let _ = cancelled.await;
        calm().await;
        is_kept(&world, &stranger, Duration::ZERO).await;
    });
}

#[test]
fn a_hold_longer_than_min_hold_frees_the_key_at_once() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").min_hold(5 * SECOND).acquire().await.unwrap();
        world.pass(5 * SECOND).await;
        guard.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_neighbour_waits_for_the_end_of_a_kept_key() {
    test(async {
        let world = World::new();
        let held = world.lock("k").min_hold(5 * SECOND).acquire().await.unwrap();
        let since = world.clock.now();
        let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        held.release().await.unwrap();
        let next = world.pass_until(SECOND / 10, next).await.unwrap().unwrap();
        let waited = world.clock.now().since(since);
        assert!(waited >= 5 * SECOND && waited < 6 * SECOND, "{waited:?}");
        next.release().await.unwrap();
    });
}

#[test]
fn a_lost_hold_does_not_keep_the_key() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").min_hold(20 * SECOND).acquire().await.unwrap();
        world.memory.forget(&full("k"));
        assert!(guard.confirm().await.unwrap_err().is_lost());
        assert!(guard.release().await.unwrap_err().is_lost());
        calm().await;
        assert!(world.memory.is_empty());
        freed(&world, "k").await;
    });
}

#[test]
fn a_min_hold_beyond_the_ttl_is_refused() {
    test(async {
        let world = World::new();
        let error = world.lock("k").ttl(SECOND).min_hold(2 * SECOND).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "min_hold".into() });
    });
}

#[test]
fn each_lock_may_have_its_own_bound_of_waiters() {
    test(async {
        let world = World::new();
        let (_held, waiting) = held_and_awaited(world.lock("k"), world.lock("k").wait(LONG)).await;
        let error = world.lock("k").wait(LONG).max_waiters(1).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::QueueFull { max: 1 });
        let other = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        assert!(!waiting.is_finished() && !other.is_finished());
        let error = world.lock("k").max_waiters(0).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "max_waiters".into() });
    });
}

#[test]
fn a_lock_may_have_its_own_back_off() {
    test(async {
        let attempts = async |backoff: Option<Backoff>| {
            let world = World::with(&dlock_runtime::Clock::manual(), |caps| {
                caps.wake = WakeStyle::Poll { from: 100 * MS, to: 200 * MS };
            });
            world.store.always(Op::Acquire, Step::BrokenSignal);
            let lock = world.lock("k").wait(Wait::UpTo(60 * SECOND));
            let lock = if let Some(backoff) = backoff { lock.backoff(backoff) } else { lock };
            world.pass_until(20 * MS, lock.acquire()).await.unwrap_err().attempts()
        };
        let (usual, slow) = (attempts(None).await, attempts(Some(Backoff::new(10 * SECOND, 10 * SECOND))).await);
        assert!(usual > 200 && slow < 60, "{usual} and {slow}");
        let none = Backoff::new(Duration::ZERO, SECOND);
        let error = World::new().lock("k").backoff(none).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "backoff".into() });
    });
}

#[test]
fn a_lock_may_ask_a_failing_store_as_often_as_it_wants() {
    test(async {
        let world = World::new();
        let backoff = Backoff::new(MS, MS);
        let retry = |times| world.lock("k").wait(LONG).retry(Retry { times, backoff: Some(backoff) });
        world.store.always(Op::Acquire, Step::Fail);
        let error = world.pass_until(MS, retry(0).acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 1));
        let error = world.pass_until(MS, retry(6).acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 7));
        world.store.always(Op::Acquire, Step::Pass);
        world.store.next(Op::Acquire, [Step::Fail; 6]);
        world.pass_until(MS, retry(6).acquire()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_neighbour_with_another_mode_is_a_conflict_and_no_contention() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let error = world.lock("k").mode(Mode::Read).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::KeyConflict);
        held.release().await.unwrap();
        world.lock("k").mode(Mode::Read).acquire().await.unwrap().release().await.unwrap();
    });
}
