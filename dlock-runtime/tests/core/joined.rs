//! `reentrant`: a nested call uses the hold of the enclosing one.

use std::sync::mpsc::channel;
use std::task::Poll;

use dlock_runtime::{ErrorKind, Event, Lock, Mode, OnLost, OncePer, Renew, current};
use dlock_store::background;

use crate::support::{LONG, Op, SECOND, World, freed, full, is_free, poll_once, test};

#[test]
fn a_nested_call_joins_the_outer_hold_and_does_not_release_it() {
    test(async {
        let world = World::new();
        let (world, inner) = (&world, world.lock("k").reentrant(true));
        let body = |outer: dlock_runtime::Held| async move {
            let token = inner.run(|held| async move { held.fence().unwrap().get() }).await.unwrap();
            assert_eq!(token, outer.fence().unwrap().get());
            assert!(outer.check().is_ok());
            assert_eq!(current().unwrap().key(), &full("k"));
            assert!(!is_free(world, "k").await);
        };
        world.lock("k").run(body).await.unwrap();
        freed(world, "k").await;
        assert_eq!(world.events.count("Released"), 2, "the outer one and the look whether it is free");
    });
}

#[test]
fn a_joined_guard_that_is_dropped_or_released_frees_nothing() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").reentrant(true);
        let outer = world.lock("k").run(|_| async {
            drop(inner.clone().acquire().await.unwrap());
            inner.acquire().await.unwrap().release().await.unwrap();
            assert_eq!(world.store.calls(Op::Release), 0);
        });
        outer.await.unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Release)), (1, 1));
    });
}

#[test]
fn a_joined_call_hears_of_the_loss() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").reentrant(true).run(|_| async {
            world.clock.advance(40 * SECOND);
            std::future::pending::<()>().await;
        });
        let outer = world.lock("k").renew(dlock_runtime::Renew::Off).run(|_| inner).await;
        assert!(outer.unwrap_err().is_lost());
    });
}

/// The simulation found it: the body had computed for longer than its lease, and the nested call joined before the loss was seen.
#[test]
fn a_nested_call_does_not_join_a_hold_whose_time_is_over() {
    test(async {
        let world = World::new();
        let world = &world;
        let outer = world.lock("k").renew(Renew::Off).on_lost(OnLost::Continue).run(|outer| async move {
            let token = outer.fence().unwrap().get();
            // The thread that would declare the loss stands still.
            let ((begins, has_begun), (end, ended)) = (channel(), channel::<()>());
            let stands_still = async move {
                begins.send(()).unwrap();
                let _ = ended.recv();
            };
            background().unwrap().spawn(stands_still);
            has_begun.recv().unwrap();
            world.clock.advance(40 * SECOND);
            let mut nested = Box::pin(world.lock("k").reentrant(true).acquire());
            let joined = poll_once(&mut nested);
            drop(end);
            let guard = match joined {
                Poll::Ready(joined) => joined.unwrap(),
                Poll::Pending => nested.await.unwrap(),
            };
            guard.check().unwrap();
            assert!(guard.fence().unwrap().get() > token);
        });
        assert!(outer.await.unwrap_err().is_lost());
    });
}

#[test]
fn a_nested_call_that_is_not_reentrant_fails_and_siblings_wait() {
    test(async {
        let world = World::new();
        let nested = world.lock("k").wait(LONG);
        let told = world.lock("k").run(|_| async { nested.acquire().await.unwrap_err() }).await.unwrap();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        let sibling = || world.lock("k").wait(LONG).reentrant(true).run(|_| tokio::task::yield_now());
        let (one, other) = tokio::join!(sibling(), sibling());
        assert!(one.is_ok() && other.is_ok());
        let asked = world.store.calls(Op::Acquire) + world.store.calls(Op::Carry);
        assert_eq!(asked, 3, "siblings are no enclosing calls");
    });
}

#[test]
fn a_nested_call_joins_only_a_hold_that_covers_its_options() {
    let two = std::num::NonZeroU32::new(2).unwrap();
    let table = [
        (Mode::Write, Mode::Read, true),
        (Mode::Write, Mode::Write, true),
        (Mode::Read, Mode::Read, true),
        (Mode::Read, Mode::Write, false),
        (Mode::Permits(two), Mode::Permits(two), true),
        (Mode::Exclusive, Mode::Read, false),
    ];
    test(async {
        for (outer, inner, joins) in table {
            let world =
                World::with(&dlock_runtime::Clock::manual(), |can| (can.read_write, can.permits) = (true, true));
            let nested = world.lock("k").mode(inner).reentrant(true).wait(LONG);
            let ran = world.lock("k").mode(outer).run(|_| nested.run(|_| async {})).await.unwrap();
            match ran {
                Ok(()) => assert!(joins, "{outer:?} {inner:?}"),
                Err(error) => {
                    assert!(!joins && *error.kind() == ErrorKind::WouldDeadlock, "{outer:?} {inner:?} {error}")
                }
            }
        }
    });
}

#[test]
fn a_nested_call_with_min_hold_or_once_per_does_not_join() {
    type Ask = fn(Lock) -> Lock;
    let asks: [(&str, Ask); 3] = [
        ("`once_per`", |lock| lock.once_per(OncePer::new(SECOND * 3600))),
        ("`min_hold`", |lock| lock.min_hold(SECOND)),
        ("a recorded run", |lock| lock.record(true)),
    ];
    test(async {
        for (what, ask) in asks {
            let world = World::with(&dlock_runtime::Clock::manual(), |can| {
                (can.periods, can.keeps) = (true, true);
            });
            let inner = ask(world.lock("k").reentrant(true));
            let told =
                world.lock("k").run(|_| inner.clone().run(|_| async { panic!("it runs: {what}") })).await.unwrap();
            let error = told.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::WouldDeadlock);
            assert!(error.to_string().contains(what), "{what}: {error}");
            // Without an enclosing call it is a plain call, and other calls join its hold.
            let joins = world.lock("k").reentrant(true);
            inner.run(|_| joins.run(|_| async {})).await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_joined_call_in_another_task_does_not_take_the_outer_calls_notification() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").reentrant(true);
        let outer = world.lock("k").run(|_| async {
            let child = tokio::spawn(dlock_runtime::inherit(inner.run(|_| std::future::pending::<()>())));
            child.await.unwrap()
        });
        let outer = tokio::spawn(outer);
        crate::support::calm().await;
        world.memory.forget(&full("k"));
        world.pass(15 * SECOND).await;
        // Both are woken: the outer one is dropped at its await, and tells.
        assert!(outer.await.unwrap().unwrap_err().is_lost());
    });
}

#[test]
fn options_that_a_joined_hold_does_not_have_are_named_with_both_calls() {
    test(async {
        let world = World::new();
        let outer = || world.lock("k").name("outer").mode(Mode::Write).ttl(20 * SECOND).max_hold(60 * SECOND);
        let join = async |inner: Lock| {
            let before = world.events.all().len();
            outer().run(|_| inner.name("inner").reentrant(true).run(|_| async {})).await.unwrap().unwrap();
            let ignored = world.events.all().split_off(before).into_iter().filter_map(|(name, event)| match event {
                Event::OptionsIgnored { options, holder } => Some([name, options.to_string(), holder.to_string()]),
                _ => None,
            });
            ignored.collect::<Vec<_>>()
        };
        let named = |options: &str| vec![["inner [k] on m", options, "outer"].map(str::to_owned)];
        let inner = || world.lock("k").mode(Mode::Write);
        assert!(join(inner()).await.is_empty());
        assert!(join(inner().ttl(20 * SECOND).max_hold(60 * SECOND).wait(LONG).timeout(SECOND)).await.is_empty());
        assert_eq!(join(inner().ttl(90 * SECOND)).await, named("ttl"));
        assert_eq!(join(inner().ttl(20 * SECOND).renew(Renew::Off)).await, named("renew"));
        assert_eq!(join(inner().max_hold(3600 * SECOND).fair(true)).await, named("max_hold, fair"));
        assert_eq!(join(world.lock("k").mode(Mode::Read)).await, named("mode"));
    });
}

/// The enclosing call says how its run has ended.
#[test]
fn a_joined_guard_that_is_released_says_nothing_of_the_run() {
    test(async {
        let world = World::new();
        let call = world.lock("k").record(true).run_fallible(async |_| {
            world.lock("k").reentrant(true).acquire().await.unwrap().release().await.unwrap();
            Err::<(), _>(dlock_runtime::Error::outage("of the body"))
        });
        call.await.unwrap_err();
        assert!(world.lock("k").last_success().await.unwrap().is_none());
    });
}
