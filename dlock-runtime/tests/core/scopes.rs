//! Which holds count as those of the enclosing calls, and who is inside of a hold that a call has joined.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use dlock_memory::Memory;
use dlock_runtime::__private::{Call, KeyBuilder, OnLost, Options, Otherwise, Ran, Site, run, run_sync};
use dlock_runtime::{Error, ErrorKind, Held, Key, LossCause, Registry, Wait, current, current_locks, inherit};
use futures::FutureExt;

use crate::support::{LONG, Op, World, calm, freed, full, poll_once, test};

fn site(reentrant: bool) -> &'static Site {
    static REGISTRY: LazyLock<()> = LazyLock::new(|| Registry::global().install("scopes", Memory::new()).unwrap());
    LazyLock::force(&REGISTRY);
    Box::leak(Box::new(Site {
        name: "scopes::call",
        templates: &["<text>"],
        computed: false,
        is_async: true,
        file: "scopes.rs",
        line: 1,
        backend: Some("scopes"),
        per_call: &[],
        options: Options { reentrant, wait: Some(LONG), ..Options::DEFAULT },
        on_busy: Otherwise::Error,
        on_outage: Otherwise::Error,
    }))
}

fn keys(keys: &[&'static str]) -> Call {
    let key = |key: &&'static str| {
        let mut builder = KeyBuilder::new();
        builder.text(key);
        builder.finish()
    };
    Call::several(keys.iter().map(key).collect())
}

fn holds(key: &'static str) -> bool {
    current_locks(|held| held.is_of(&Key::text(key)))
}

#[track_caller]
fn done<T>(ran: Ran<T>) -> T {
    match ran {
        Ran::Done(output) => output,
        Ran::Failed(error) | Ran::Lost(error, _) => panic!("{error}"),
    }
}

#[track_caller]
fn would_deadlock<T>(ran: Ran<T>) {
    match ran {
        Ran::Failed(error) => assert_eq!(error.kind(), &ErrorKind::WouldDeadlock),
        _ => panic!("it waits for itself"),
    }
}

/// Of a call for `taken` inside of one for `around`, one key is joined and the other is taken.
async fn one_is_joined(around: &'static str, taken: [&'static str; 2]) {
    let inner = async move {
        for key in taken {
            assert!(holds(key), "{key}");
            would_deadlock(run(site(false), keys(&[key]), async {}).await);
            would_deadlock(run(site(false), keys(&[key, "more"]), async {}).await);
            done(run(site(true), keys(&[key]), async {}).await);
        }
        assert_eq!(current().unwrap().key(), &full(taken[1]), "the last one in the order of the names");
        let child = tokio::spawn(inherit(async move {
            assert!(taken.into_iter().all(holds));
            would_deadlock(run(site(false), keys(&[taken[0]]), async {}).await);
        }));
        child.await.unwrap();
    };
    let body = async move {
        done(run(site(true), keys(&taken), inner).await);
        assert!(holds(around));
        assert_eq!(taken.into_iter().filter(|key| holds(key)).count(), 1, "the joined one is left");
    };
    done(run(site(false), keys(&[around]), body).await);
}

#[test]
fn of_several_keys_of_which_one_is_joined_all_are_held() {
    test(async {
        one_is_joined("joined:z", ["joined:a", "joined:z"]).await;
        one_is_joined("joined:b", ["joined:b", "joined:c"]).await;
    });
}

#[test]
fn of_several_keys_of_a_blocking_call_of_which_one_is_joined_all_are_held() {
    let inner = || {
        assert!(holds("sync:a") && holds("sync:z"));
        would_deadlock(run_sync(site(false), keys(&["sync:a"]), None, || ()));
    };
    done(run_sync(site(false), keys(&["sync:z"]), None, || {
        done(run_sync(site(true), keys(&["sync:a", "sync:z"]), None, inner));
    }));
}

#[test]
fn a_call_that_joins_an_outer_hold_keeps_the_holds_in_between() {
    test(async {
        let world = World::new();
        let (middle, joining) = (world.lock("between"), world.lock("k").reentrant(true));
        let asking = world.lock("between").wait(LONG);
        let asks = |_| async {
            assert!(holds("k") && holds("between"));
            asking.acquire().await.unwrap_err()
        };
        let outer = world.lock("k").run(|_| middle.run(|_| joining.run(asks)));
        let told = outer.await.unwrap().unwrap().unwrap();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
    });
}

/// The output of a call, which several tasks can await.
fn told<T>(ran: Result<T, Error>) -> Option<ErrorKind> {
    ran.err().map(|error| error.kind().clone())
}

const LEFT: Option<ErrorKind> = Some(ErrorKind::Lost(LossCause::LeftBody));

#[test]
fn a_joined_call_that_another_task_polls_is_lost_and_does_not_run_there() {
    test(async {
        for on_lost in [OnLost::Cancel, OnLost::Continue] {
            let world = World::new();
            let polls = Arc::new(AtomicUsize::new(0));
            let counted = polls.clone();
            let inside = poll_fn(move |cx| {
                counted.fetch_add(1, Ordering::SeqCst);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            });
            let lock = world.lock("k").reentrant(true).on_lost(on_lost);
            let mut shared = lock.run(|_| inside).map(told).boxed().shared();
            let body = |held: Held| async move {
                assert!(poll_once(&mut shared).is_pending());
                assert_eq!(tokio::spawn(shared.clone()).await.unwrap(), LEFT);
                assert_eq!(shared.await, LEFT, "also for the body that it has left");
                held.check().unwrap();
            };
            world.lock("k").run(body).await.unwrap();
            assert_eq!(polls.load(Ordering::SeqCst), 1);
            freed(&world, "k").await;
        }
    });
}

#[test]
fn a_call_that_joins_while_it_waits_for_another_key_does_not_begin_elsewhere() {
    test(async {
        let (free, gone) = tokio::sync::oneshot::channel::<()>();
        let holder = tokio::spawn(run(site(false), keys(&["left:a"]), async { gone.await.unwrap() }).map(done));
        calm().await;
        let body = async {
            let begins = async { panic!("it begins outside of the body") };
            let mut nested = run(site(true), keys(&["left:a", "left:z"]), begins).map(|ran| match ran {
                Ran::Failed(error) | Ran::Lost(error, None) => Some(error.kind().clone()),
                _ => None,
            });
            assert!(poll_once(&mut nested).is_pending());
            let elsewhere = tokio::spawn(nested);
            free.send(()).unwrap();
            assert_eq!(elsewhere.await.unwrap(), LEFT);
        };
        done(run(site(false), keys(&["left:z"]), body).await);
        holder.await.unwrap();
        done(run(site(false), keys(&["left:a", "left:z"]), async {}).await);
    });
}

#[test]
fn a_joined_guard_does_not_hold_in_another_task() {
    test(async {
        let world = World::new();
        let joining = world.lock("k").reentrant(true);
        let body = |_| async {
            let guard = joining.acquire().await.unwrap();
            guard.check().unwrap();
            let child = tokio::spawn(inherit(async move {
                guard.check().unwrap();
                guard
            }));
            let guard = child.await.unwrap();
            let renewals = world.store.calls(Op::Renew);
            let stranger =
                tokio::spawn(
                    async move { [told(guard.check()), told(guard.confirm().await), told(guard.release().await)] },
                );
            assert_eq!(stranger.await.unwrap(), [LEFT, LEFT, LEFT]);
            assert_eq!(world.store.calls(Op::Renew), renewals);
        };
        world.lock("k").run(body).await.unwrap();
    });
}

#[test]
fn a_call_that_another_task_polls_does_not_bring_the_locks_of_its_first_caller() {
    test(async {
        let world = World::new();
        let (middle, joins) = (world.lock("middle"), world.lock("k").reentrant(true).wait(Wait::None));
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let inside = |_| async move {
            let _ = gone.await;
            assert!(holds("middle") && !holds("k"));
            told(joins.acquire().await)
        };
        let body = |_| async move {
            let mut called = middle.run(inside).boxed();
            assert!(poll_once(&mut called).is_pending());
            go.send(()).unwrap();
            tokio::spawn(called).await.unwrap().unwrap()
        };
        assert_eq!(world.lock("k").run(body).await.unwrap(), Some(ErrorKind::Busy));
    });
}

#[test]
fn a_call_that_would_wait_for_itself_is_told_with_both_places() {
    test(async {
        let world = World::new();
        let inner = world.lock("k").name("audit").wait(LONG);
        let told = world.lock("k").name("deduct").run(|_| async { inner.acquire().await.unwrap_err() }).await.unwrap();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        let text = told.to_string();
        assert!(text.contains("`audit`") && text.contains("`deduct`"), "{text}");
    });
}

#[test]
fn the_closure_of_a_run_is_inside_of_the_lock_and_never_begins_without_it() {
    test(async {
        let world = World::new();
        let asking = world.lock("k").wait(LONG);
        let asks = |held: Held| {
            assert_eq!(current().unwrap().key(), held.key());
            async move { told(asking.acquire().await) }
        };
        assert_eq!(world.lock("k").run(asks).await.unwrap(), Some(ErrorKind::WouldDeadlock));
        let plain = |_: Held| {
            assert!(holds("k"));
            async { Ok::<(), Error>(()) }
        };
        world.lock("k").run_fallible(plain).await.unwrap();
        let leads = |_| {
            assert!(holds("k"));
            async {}
        };
        world.registry.elect("k").lead(leads).await.unwrap();
        // A body that is dropped is dropped as a whole.
        let mut run = world.lock("k").run(|_| pending::<()>()).boxed();
        assert!(poll_once(&mut run).is_pending());
        drop(run);
        calm().await;
        freed(&world, "k").await;
    });
}
