//! Leftovers of a caller in the store: its turn stays until they are gone, and no longer than a second.

use std::num::NonZeroU32;
use std::pin::Pin;

use dlock_runtime::{Clock, ErrorKind, Guard, Mode, Result};

use crate::acquire::polled;
use crate::cohort::{member, waits};
use crate::cohort_ends::late;
use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, poll_once, test};

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard>>>>;

fn asks(world: &World) -> Acquiring {
    let mut asks: Acquiring = Box::pin(world.lock("k").wait(LONG).acquire());
    assert!(poll_once(&mut asks).is_pending());
    asks
}

/// Each way in which a caller is gone whose leftovers our thread must abandon.
#[derive(Clone, Copy, Debug)]
enum Gone {
    Asking,
    /// A failed release had asked for it.
    AskedFor,
    /// While a release asked for it.
    WhileAskedFor,
    /// With the answer that a release has brought it.
    Answered,
    /// With a hold that was passed on to it.
    Passed,
    /// While it abandoned such a hold, which it had noticed too late.
    TooLate,
}

const WAYS: [Gone; 6] =
    [Gone::Asking, Gone::AskedFor, Gone::WhileAskedFor, Gone::Answered, Gone::Passed, Gone::TooLate];

/// A caller is gone, and the next abandon takes this step.
async fn gone(world: &World, way: Gone, abandon: Step) {
    match way {
        Gone::Asking => {
            world.store.next(Op::Acquire, [Step::LostReply]);
            let asks = asks(world);
            world.store.next(Op::Abandon, [abandon]);
            drop(asks);
        }
        Gone::AskedFor => {
            let held = world.lock("k").acquire().await.unwrap();
            let next = asks(world);
            world.store.next(Op::Release, [Step::Fail]);
            world.store.next(Op::Abandon, [abandon]);
            held.release().await.unwrap();
            drop(next);
        }
        Gone::WhileAskedFor => {
            let held = world.lock("k").acquire().await.unwrap();
            let next = asks(world);
            world.store.next(Op::Release, [Step::Late(100 * MS)]);
            world.store.next(Op::Abandon, [abandon]);
            let release = tokio::spawn(held.release());
            calm().await;
            drop(next);
            world.pass_until(10 * MS, release).await.unwrap().unwrap();
        }
        Gone::Answered => {
            let held = world.lock("k").acquire().await.unwrap();
            let next = asks(world);
            held.release().await.unwrap();
            world.store.next(Op::Abandon, [abandon]);
            drop(next);
        }
        Gone::Passed => {
            let first = member(world).acquire().await.unwrap();
            let mut second = Box::pin(member(world).acquire());
            assert!(poll_once(&mut second).is_pending());
            first.release().await.unwrap();
            world.store.next(Op::Abandon, [abandon]);
            drop(second);
        }
        Gone::TooLate => {
            let mut second = late(world).await;
            world.store.next(Op::Abandon, [Step::Hang, abandon]);
            assert!(poll_once(&mut second).is_pending());
            drop(second);
        }
    }
    calm().await;
}

/// The leftovers of a caller that is gone are no use of the key: a caller of another mode waits for their end.
#[test]
fn a_caller_of_another_mode_waits_until_leftovers_are_gone() {
    for way in WAYS {
        test(async move {
            let world = World::new();
            gone(&world, way, Step::Late(100 * MS)).await;
            let permit = Mode::Permits(NonZeroU32::new(3).unwrap());
            let next = tokio::spawn(world.lock("k").mode(permit).wait(LONG).acquire());
            calm().await;
            assert!(!next.is_finished(), "{way:?}: {next:?}");
            let next = world.pass_until(10 * MS, next).await.unwrap();
            next.unwrap_or_else(|error| panic!("{way:?}: {error}")).release().await.unwrap();
            world.empty().await;
        });
    }
}

/// Its neighbours wait for the abandon, and for a silent store they do not wait for long: they hear that it is silent.
#[test]
fn an_abandon_without_an_answer_keeps_the_turn_for_a_second() {
    for way in WAYS {
        test(async move {
            let world = World::new();
            gone(&world, way, Step::Hang).await;
            let asked = world.store.calls(Op::Acquire);
            let next = tokio::spawn(world.lock("k").wait(LONG).acquire());
            world.pass(900 * MS).await;
            assert_eq!(world.store.calls(Op::Acquire), asked, "{way:?}");
            world.pass(200 * MS).await;
            assert_eq!(world.store.calls(Op::Acquire), asked + 1, "{way:?}");
            next.abort();
        });
    }
}

/// The caller itself waits no longer than a second either, whatever its ttl.
#[test]
fn a_caller_waits_a_second_for_its_own_abandon() {
    test(async {
        let (world, stranger) = polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        world.store.always(Op::Abandon, Step::Hang);
        let waiting = tokio::spawn(world.lock("k").attempts(1).wait(LONG).acquire());
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), 1, "before it hears of its failure");
        world.pass(900 * MS).await;
        assert!(!waiting.is_finished());
        world.pass(200 * MS).await;
        assert!(waiting.is_finished());
        world.store.always(Op::Abandon, Step::Pass);
        held.release().await.unwrap();
        // A hold that was passed on, and noticed too late.
        let world = World::new();
        let second = late(&world).await;
        world.store.next(Op::Abandon, [Step::Hang]);
        let second = tokio::spawn(second);
        calm().await;
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (1, 1));
        world.pass(1100 * MS).await;
        second.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
        // The store has told it to give way.
        let world = World::with(&Clock::manual(), |store| store.settle = true);
        let outer = world.lock("outer").run(|_| async {
            world.store.next(Op::Acquire, [Step::GiveWay]);
            world.store.next(Op::Abandon, [Step::Hang]);
            let mut inner = Box::pin(world.lock("inner").wait(LONG).acquire());
            assert!(poll_once(&mut inner).is_pending());
            assert_eq!(world.store.calls(Op::Abandon), 1);
            world.clock.advance(1100 * MS);
            inner.await.unwrap_err()
        });
        assert_eq!(outer.await.unwrap().kind(), &ErrorKind::Conflict);
    });
}

/// The hold could not be passed on after all. Until the store has freed it, the next caller would only meet it.
#[test]
fn a_turn_that_cannot_be_passed_on_with_its_hold_stays_until_the_release() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.exchange = false);
        let first = member(&world).acquire().await.unwrap();
        let mut second = Box::pin(member(&world).acquire());
        assert!(poll_once(&mut second).is_pending());
        let third = waits(world.lock("k").wait(LONG));
        calm().await;
        world.store.next(Op::Reserve, [Step::Late(100 * MS)]);
        world.store.next(Op::Release, [Step::Late(SECOND)]);
        let release = tokio::spawn(first.release());
        calm().await;
        drop(second);
        world.pass(500 * MS).await;
        assert_eq!((world.store.calls(Op::Reserve), world.store.calls(Op::Release)), (1, 1));
        assert_eq!(world.store.calls(Op::Acquire), 1, "the third caller waits for the release");
        world.pass_until(100 * MS, release).await.unwrap().unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        world.empty().await;
    });
}

/// The abandon is our thread's work, so it goes on while the caller blocks its own.
#[test]
fn a_blocking_caller_waits_for_the_leftovers_of_a_caller_of_its_thread() {
    for way in [Gone::Asking, Gone::AskedFor, Gone::WhileAskedFor, Gone::TooLate] {
        test(async move {
            let world = World::new();
            gone(&world, way, Step::Late(100 * MS)).await;
            let clock = world.clock.clone();
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let passes = std::thread::spawn(move || {
                while stopped.recv_timeout(MS) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    clock.advance(10 * MS);
                }
            });
            let guard = world.lock("k").wait(LONG).acquire_blocking();
            guard.unwrap_or_else(|error| panic!("{way:?}: {error}")).release_blocking().unwrap();
            drop(stop);
            passes.join().unwrap();
        });
    }
}
