//! Callers that have the turn of their process and are not polled: it goes to the next caller.

use std::pin::Pin;
use std::time::Duration;

use dlock_contract::WakeStyle;
use dlock_runtime::{Backoff, Clock, Cohort, ErrorKind, Guard, Lock, Result};

use crate::acquire::{neighbours, stranger};
use crate::support::{
    LONG, MS, Offers, Op, SECOND, Step, World, calm, freed, full, held_and_awaited, is_free, poll_once, test, until,
};

pub(crate) type Acquiring = Pin<Box<dyn Future<Output = Result<Guard>>>>;

/// The longest that an unpolled caller delays the callers behind it; and those that must ask the store beside it.
pub(crate) const LONGEST: Duration = Duration::from_secs(9);
const LONGEST_IN_STORE: Duration = Duration::from_secs(14);

/// A call that is polled once, and then no more.
pub(crate) fn polled_once(lock: Lock) -> Acquiring {
    let mut calling: Acquiring = Box::pin(lock.acquire());
    assert!(poll_once(&mut calling).is_pending());
    calling
}

/// The stores whose callers take turns in different ways.
fn stores() -> [fn(&mut Offers); 4] {
    [
        |_| {},
        |store| store.exchange = false,
        |store| store.wake = WakeStyle::Poll { from: SECOND, to: SECOND },
        |store| store.expires_alone = false,
    ]
}

/// Another caller of the process gets the lock within the promised time, also if the unpolled call was leaked.
pub(crate) async fn goes_on(world: &World, unpolled: Acquiring, leak: bool) {
    goes_on_within(LONGEST, world, unpolled, leak).await;
}

async fn goes_on_within(longest: Duration, world: &World, unpolled: Acquiring, leak: bool) {
    let mut unpolled = Some(unpolled);
    if leak {
        std::mem::forget(unpolled.take());
    }
    let before = world.clock.now();
    let guard = world.pass_until(100 * MS, world.lock("k").wait(LONG).acquire()).await.unwrap();
    let waited = world.clock.now().since(before);
    assert!(waited <= longest, "{waited:?}");
    assert!(!is_free(&stranger(world), "k").await);
    if let Some(unpolled) = &mut unpolled {
        assert!(poll_once(unpolled).is_pending(), "it believes in a lock that another caller has");
        calm().await;
        assert!(poll_once(unpolled).is_pending());
        guard.check().unwrap();
    }
    guard.confirm().await.unwrap();
    guard.release().await.unwrap();
    if let Some(unpolled) = unpolled {
        let late = world.pass_until(100 * MS, unpolled).await.unwrap();
        late.confirm().await.unwrap();
        late.release().await.unwrap();
    }
    world.empty().await;
    freed(world, "k").await;
}

#[test]
fn a_waiter_that_does_not_notice_its_turn_loses_it() {
    for (store, leak) in stores().into_iter().flat_map(|store| [(store, false), (store, true)]) {
        test(async move {
            let world = World::with(&Clock::manual(), store);
            let held = world.lock("k").acquire().await.unwrap();
            let unpolled = polled_once(world.lock("k").wait(LONG));
            held.release().await.unwrap();
            goes_on(&world, unpolled, leak).await;
        });
    }
}

#[test]
fn a_caller_that_does_not_take_its_grant_loses_the_turn_and_the_grant() {
    for (store, leak) in stores().into_iter().flat_map(|store| [(store, false), (store, true)]) {
        test(async move {
            let world = World::with(&Clock::manual(), store);
            world.store.next(Op::Acquire, [Step::Late(SECOND)]);
            let unpolled = polled_once(world.lock("k").wait(LONG));
            assert!(!is_free(&stranger(&world), "k").await, "it was granted");
            goes_on(&world, unpolled, leak).await;
        });
    }
}

/// A grant that is pushed to a caller in the store's queue, or a lock that it would find free.
#[test]
fn a_caller_that_waits_for_a_stranger_and_is_not_polled_loses_the_turn() {
    for (store, leak) in stores().into_iter().flat_map(|store| [(store, false), (store, true)]) {
        for fair in [false, true] {
            test(async move {
                let world = World::with(&Clock::manual(), store);
                if fair && !matches!(dlock_contract::Backend::profile(&world.store).wake, WakeStyle::Grant) {
                    return;
                }
                let foreign = stranger(&world).lock("k").acquire().await.unwrap();
                let unpolled = polled_once(world.lock("k").wait(LONG).fair(fair));
                foreign.release().await.unwrap();
                goes_on_within(if fair { LONGEST_IN_STORE } else { LONGEST }, &world, unpolled, leak).await;
            });
        }
    }
}

#[test]
fn a_member_of_a_cohort_that_does_not_take_its_hold_loses_it() {
    for leak in [false, true] {
        test(async move {
            let world = World::new();
            let member = || world.lock("k").wait(LONG).cohort(Some(Cohort { passes: 8, span: None }));
            let held = member().acquire().await.unwrap();
            let unpolled = polled_once(member());
            held.release().await.unwrap();
            assert_eq!(world.store.calls(Op::Reserve), 1, "it was passed on");
            goes_on(&world, unpolled, leak).await;
        });
    }
}

/// The release was done, and its future is not polled.
#[test]
fn a_release_that_is_not_polled_keeps_the_key_from_nobody() {
    for (store, cohort) in stores().into_iter().flat_map(|store| [(store, false), (store, true)]) {
        test(async move {
            let world = World::with(&Clock::manual(), store);
            let lock = || {
                let lock = world.lock("k").wait(LONG);
                if cohort { lock.cohort(Some(Cohort { passes: 8, span: None })) } else { lock }
            };
            let guard = lock().acquire().await.unwrap();
            world.store.next(Op::Release, [Step::LostReply]);
            let mut releasing = Box::pin(guard.release());
            assert!(poll_once(&mut releasing).is_pending());
            // The release was done.
            freed(&stranger(&world), "k").await;
            assert_eq!(*world.lock("k").try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
            world.pass(5 * SECOND).await;
            let next = world.pass_until(100 * MS, world.lock("k").try_acquire()).await.unwrap();
            let _ = poll_once(&mut releasing);
            drop(releasing);
            calm().await;
            next.confirm().await.unwrap();
            next.release().await.unwrap();
            freed(&world, "k").await;
        });
    }
}

#[test]
fn a_caller_that_does_not_wait_gets_the_turn_of_one_that_is_not_polled() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let _unpolled = polled_once(world.lock("k").wait(LONG));
        let before = world.clock.now();
        let guard = world.pass_until(100 * MS, world.lock("k").try_acquire()).await.unwrap();
        assert!(world.clock.now().since(before) <= LONGEST);
        guard.release().await.unwrap();
    });
}

#[test]
fn several_keys_of_a_call_that_is_not_polled_go_on() {
    test(async {
        let world = World::new();
        world.store.next(Op::Together, [Step::Late(SECOND)]);
        let mut unpolled = Box::pin(world.registry.lock_all(["j", "k"]).wait(LONG).acquire());
        assert!(poll_once(&mut unpolled).is_pending());
        let guards =
            world.pass_until(100 * MS, world.registry.lock_all(["k", "j"]).wait(LONG).acquire()).await.unwrap();
        assert!(poll_once(&mut unpolled).is_pending());
        guards.check().unwrap();
        guards.release().await.unwrap();
        let late = world.pass_until(100 * MS, unpolled).await.unwrap();
        late.held().for_each(|held| held.check().unwrap());
        late.release().await.unwrap();
        world.empty().await;
    });
}

/// It waits for the second key and has the first one, which nothing uses.
#[test]
fn a_call_for_several_keys_that_is_not_polled_gives_back_those_that_it_has() {
    for (store, forever) in stores().into_iter().flat_map(|store| [(store, false), (store, true)]) {
        test(async move {
            let world = World::with(&Clock::manual(), store);
            let outer = world.lock("outer").run(|_| async {
                let held = world.lock("k").acquire().await.unwrap();
                let wait = if forever { dlock_runtime::Wait::Forever } else { LONG };
                let mut unpolled = Box::pin(world.registry.lock_all(["i", "j", "k"]).wait(wait).acquire());
                for _ in 0..9 {
                    assert!(poll_once(&mut unpolled).is_pending());
                    calm().await;
                }
                held.release().await.unwrap();
                assert!(!is_free(&stranger(&world), "i").await);
                let guard = world.pass_until(100 * MS, world.lock("k").wait(LONG).acquire()).await.unwrap();
                freed(&world, "i").await;
                freed(&world, "j").await;
                guard.release().await.unwrap();
                assert!(unpolled.await.unwrap_err().is_lost());
            });
            outer.await.unwrap();
            world.empty().await;
        });
    }
}

#[test]
fn a_blocking_caller_gets_the_turn_of_one_that_is_not_polled() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let _unpolled = polled_once(world.lock("k").wait(LONG));
        let lock = world.lock("k").wait(LONG);
        let blocking = tokio::task::spawn_blocking(move || lock.run_blocking(|_| ()));
        world.pass_until(10 * MS, blocking).await.unwrap().unwrap();
        // On the thread of the unpolled call, which must not be parked while that call can go on.
        world.store.next(Op::Acquire, [Step::Late(SECOND)]);
        let _unpolled = polled_once(world.lock("k").wait(LONG));
        let told = world.lock("k").wait(LONG).acquire_blocking().unwrap_err();
        assert_eq!(*told.kind(), ErrorKind::WouldDeadlock);
        world.clock.advance(LONGEST);
        let guard = world.lock("k").wait(LONG).acquire_blocking().unwrap();
        guard.release_blocking().unwrap();
    });
}

/// No other caller of the process wants the key, and the store would keep the lock as long as the process lives.
#[test]
fn a_grant_that_nobody_takes_ends_also_where_leases_do_not_end_alone() {
    for several in [false, true] {
        test(async move {
            let world = World::with(&Clock::manual(), |store| store.expires_alone = false);
            world.store.always(Op::Acquire, Step::Late(SECOND));
            world.store.always(Op::Together, Step::Late(SECOND));
            let keys = if several { &["j", "k"][..] } else { &["k"] };
            let mut unpolled = Box::pin(world.registry.lock_all(keys.iter().copied()).wait(LONG).acquire());
            assert!(poll_once(&mut unpolled).is_pending());
            assert!(!is_free(&stranger(&world), "k").await);
            std::mem::forget(unpolled);
            // Less than the lease of memory.
            world.pass(20 * SECOND).await;
            freed(&stranger(&world), "k").await;
        });
    }
}

/// Its store is slow, or it is polled late: it does what it can do within its time.
#[test]
fn a_caller_that_is_polled_keeps_its_turn() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(4900 * MS)]);
        let slow = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("k").wait(LONG).acquire());
        let slow = world.pass_until(100 * MS, slow).await.unwrap().unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (1, 0));
        let mut third = polled_once(world.lock("k").wait(LONG));
        slow.release().await.unwrap();
        behind.await.unwrap().unwrap().release().await.unwrap();
        // It is its turn now, and others look.
        let fourth = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        world.pass(1900 * MS).await;
        let third = third.as_mut().await.unwrap();
        third.release().await.unwrap();
        fourth.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Abandon), 0);
        world.empty().await;
    });
}

/// For hours behind a stranger, with a pause of a minute between two looks.
#[test]
fn a_caller_that_sleeps_long_between_two_requests_keeps_its_turn() {
    test(async {
        let world = World::with(&Clock::manual(), |store| {
            store.wake = WakeStyle::Poll { from: 100 * MS, to: SECOND };
        });
        let foreign = stranger(&world).lock("k").acquire().await.unwrap();
        let (first, second) = {
            let slow = || world.lock("k").wait(LONG).backoff(Backoff::new(60 * SECOND, 60 * SECOND));
            (tokio::spawn(slow().acquire()), tokio::spawn(slow().acquire()))
        };
        for _ in 0..20 {
            world.pass(30 * SECOND).await;
        }
        assert_eq!(world.store.calls(Op::Abandon), 0, "{}", world.store.calls(Op::Acquire));
        foreign.release().await.unwrap();
        for next in [first, second] {
            world.pass_until(SECOND, next).await.unwrap().unwrap().release().await.unwrap();
        }
    });
}

/// A caller that is passed over has its place again when it is polled, before those that came after it.
#[test]
fn a_waiter_that_was_passed_over_has_its_place_again() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let mut first = polled_once(world.lock("k").wait(LONG));
        held.release().await.unwrap();
        let second = world.pass_until(100 * MS, world.lock("k").wait(LONG).acquire()).await.unwrap();
        let third = tokio::spawn(world.lock("k").wait(LONG).acquire());
        calm().await;
        assert!(poll_once(&mut first).is_pending());
        second.release().await.unwrap();
        let first = first.await.unwrap();
        calm().await;
        assert!(!third.is_finished());
        first.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn the_error_of_a_caller_behind_names_the_one_that_is_not_polled() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::LostReply]);
        let _unpolled = polled_once(world.lock("k").wait(LONG));
        world.pass(SECOND).await;
        let told = world.pass_until(100 * MS, world.lock("k").wait(dlock_runtime::Wait::UpTo(SECOND)).acquire());
        let told = told.await.unwrap_err();
        assert_eq!(*told.kind(), ErrorKind::Outage);
        let text = told.to_string();
        assert!(text.contains("not polled") && text.contains("unpolled.rs:") && text.contains("for "), "{text}");
        assert_eq!(told.key(), Some(full("k").as_str()));
    });
}

#[test]
fn the_error_of_a_caller_behind_one_that_waits_names_that_one() {
    test(async {
        let (world, other) = neighbours();
        let held = other.lock("k").acquire().await.unwrap();
        let mut unpolled = Box::pin(world.lock("k").wait(LONG).acquire());
        until("it waits", || poll_once(&mut unpolled).is_pending() && world.store.calls(Op::Acquire) == 1).await;
        let busy = world.lock("k").try_acquire().await.unwrap_err();
        let waits = world.lock("k").wait(dlock_runtime::Wait::UpTo(SECOND)).acquire();
        let timed_out = world.pass_until(100 * MS, waits).await.unwrap_err();
        let kinds = [busy.kind(), timed_out.kind()];
        assert_eq!(kinds, [&ErrorKind::Busy, &ErrorKind::WaitTimeout]);
        for text in [busy.to_string(), timed_out.to_string()] {
            let says = |part: &str| text.contains(part);
            assert!(
                says("in this process it is held or asked for by") && says("unpolled.rs:") && says("for "),
                "{text}"
            );
        }
        held.release().await.unwrap();
    });
}

/// The usual loop: the handler of an event calls the function that is waiting in another branch.
#[test]
fn a_loop_whose_handler_calls_the_same_function_goes_on() {
    test(async {
        let (world, other) = neighbours();
        let run = || world.lock("k").run(|_| async {});
        let (held, waits) = held_and_awaited(other.lock("k"), world.lock("k").wait(LONG)).await;
        waits.abort();
        let mut branch = Box::pin(run());
        assert!(poll_once(&mut branch).is_pending());
        held.release().await.unwrap();
        // The handler; the branch is not polled meanwhile.
        world.pass_until(100 * MS, run()).await.unwrap();
        world.pass_until(100 * MS, branch).await.unwrap();
        until("nothing is left", || world.memory.is_empty()).await;
    });
}
