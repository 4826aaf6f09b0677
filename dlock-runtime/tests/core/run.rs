//! The body under the lock: when it starts, when it is dropped, and the result for the caller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use dlock_memory::Memory;
use dlock_runtime::__private::{Call, KeyBuilder, LockReturn, Options, Otherwise, Site, run};
use dlock_runtime::{Error, ErrorKind, Held, LossCause, Registry, Renew};

use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, full, test};

/// Says when it is dropped, and whether the store still had the lock then.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_body_is_cut_off_at_its_next_await_and_goes_before_the_lock_does() {
    test(async {
        let world = World::new();
        let (memory, held_at_drop) = (world.memory.clone(), Arc::new(AtomicBool::new(false)));
        let noted = held_at_drop.clone();
        let run = world.lock("k").max_hold(60 * SECOND).run(move |_| async move {
            let _last = OnDrop(move || noted.store(!memory.is_empty(), Ordering::Release));
            std::future::pending::<()>().await;
        });
        let error = world.pass_until(SECOND, run).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::MaxHold));
        assert!(held_at_drop.load(Ordering::Acquire), "the body was dropped after the release");
        world.empty().await;
    });
}

#[test]
fn a_caller_hears_of_the_loss_also_while_the_store_is_silent() {
    test(async {
        let world = World::new();
        for op in [Op::Renew, Op::Release] {
            world.store.always(op, Step::Hang);
        }
        let before = world.clock.now();
        let run = world.lock("k").run(|_| std::future::pending::<()>());
        let error = world.pass_until(SECOND / 10, run).await.unwrap_err();
        assert!(error.is_lost());
        assert!(world.clock.now().since(before) <= 30 * SECOND);
    });
}

#[test]
fn ok_of_a_body_whose_lock_was_lost_becomes_lost() {
    test(async {
        let world = World::new();
        let clock = world.clock.clone();
        // The body never awaits, so it runs to its end, but not in time.
        let run = world.lock("k").renew(Renew::Off).run(|_| async move { clock.advance(30 * SECOND) });
        let error = run.await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        let text = "its time was over before the work, and it is not renewed; give it a longer `at_most`";
        assert!(error.to_string().contains(text), "{error}");
    });
}

#[test]
fn ok_of_a_body_whose_lock_the_store_has_given_away_becomes_lost() {
    test(async {
        let world = World::new();
        let memory = world.memory.clone();
        let error = world.lock("k").run(|_| async move { memory.forget(&full("k")) }).await;
        assert_eq!(error.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
    });
}

/// The expansion of an annotated function, on the global registry and its clock.
pub(crate) fn annotated<T: LockReturn>(
    key: &'static str,
    ttl: Duration,
    body: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let site = site(key, Options { ttl: Some(ttl), renew: Some(Renew::Off), ..Options::DEFAULT });
    let mut builder = KeyBuilder::new();
    builder.text(key);
    let ran = run(site, Call::new(builder.finish()), body);
    async move { T::from_ran(ran.await) }
}

fn site(template: &'static str, options: Options) -> &'static Site {
    Box::leak(Box::new(Site {
        name: "core::annotated",
        templates: Box::leak(Box::new([template])),
        computed: false,
        is_async: true,
        file: file!(),
        line: line!(),
        backend: Some("run"),
        per_call: &[],
        options,
        on_busy: Otherwise::Error,
        on_outage: Otherwise::Error,
    }))
}

/// The global registry is shared by the tests of this file.
static STORE: LazyLock<Memory> = LazyLock::new(Memory::new);

pub(crate) fn install() {
    let _ = dlock_runtime::install("run", STORE.clone());
}

#[derive(Debug, PartialEq)]
enum Failure {
    Own,
    Lock(ErrorKind),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error.kind().clone())
    }
}

/// On the machine's clock, as the global registry is.
#[test]
fn the_error_of_a_body_wins_over_the_loss() {
    test(async {
        install();
        let late = |result: Result<(), Failure>| async move {
            std::thread::sleep(Duration::from_millis(2100));
            result
        };
        let ttl = Duration::from_secs(2);
        assert_eq!(annotated("own", ttl, late(Err(Failure::Own))).await, Err(Failure::Own));
        let lost = Failure::Lock(ErrorKind::Lost(LossCause::Deadline));
        assert_eq!(annotated("ok", ttl, late(Ok(()))).await, Err(lost));
        assert_eq!(annotated("in time", 30 * SECOND, async { Ok::<_, Failure>(7) }).await, Ok(7));
    });
}

/// Whichever of them it is, and although the body never looks.
#[test]
fn a_body_with_several_locks_ends_with_the_loss_of_one() {
    test(async {
        install();
        for gone in ["several:a", "several:b", "several:c"] {
            let renew = Some(Renew::Every(100 * MS));
            let options = Options { ttl: Some(30 * SECOND), renew, ..Options::DEFAULT };
            let site = site("several", options);
            let keys = ["several:a", "several:b", "several:c"].map(|name| {
                let mut key = KeyBuilder::new();
                key.text(name);
                key.finish()
            });
            let body = async move {
                STORE.forget(&full(gone));
                std::future::pending::<Result<(), Failure>>().await
            };
            // In a task of its own, because another reason to poll it would find the loss too.
            let ran = tokio::spawn(async { Result::from_ran(run(site, Call::several(keys.into()), body).await) });
            let ended = tokio::time::timeout(20 * SECOND, ran).await.expect("the loss ends it").unwrap();
            assert_eq!(ended, Err(Failure::Lock(ErrorKind::Lost(LossCause::Store))), "{gone}");
        }
    });
}

#[test]
fn a_body_is_not_started_without_the_lock() {
    test(async {
        install();
        let started = AtomicBool::new(false);
        let body = async {
            started.store(true, Ordering::Relaxed);
            Ok(())
        };
        let refused = Failure::Lock(ErrorKind::ConfigInvalid { field: "ttl".into() });
        assert_eq!(annotated("k", Duration::ZERO, body).await, Err(refused));
        assert!(!started.load(Ordering::Relaxed));
    });
}

#[test]
fn a_panic_in_the_body_releases() {
    test(async {
        let world = World::new();
        let run = world.lock("k").run(|_| async { panic!("in the body") });
        let joined = tokio::task::spawn(run).await;
        assert!(joined.unwrap_err().is_panic());
        world.empty().await;
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_panic_in_the_closure_releases() {
    test(async {
        let world = World::new();
        let run = world.lock("k").run(|held| {
            assert!(held.check().is_err(), "in the closure");
            async {}
        });
        assert!(tokio::task::spawn(run).await.unwrap_err().is_panic());
        world.empty().await;
    });
}

#[test]
fn a_body_need_not_be_send() {
    test(async {
        let world = World::new();
        let local = std::rc::Rc::new(5);
        let borrowed = &local;
        let output = world.lock("k").run(|_| async move {
            tokio::task::yield_now().await;
            **borrowed
        });
        assert_eq!(output.await.unwrap(), 5);
    });
}

#[test]
fn bodies_of_one_key_never_overlap_and_see_rising_tokens() {
    test(async {
        let world = World::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (seen, inside) = (seen.clone(), inside.clone());
                let body = move |held: Held| async move {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    seen.lock().unwrap().push(held.fence().unwrap().get());
                    inside.fetch_sub(1, Ordering::SeqCst);
                };
                tokio::spawn(world.lock("k").wait(LONG).run(body))
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 50);
        assert!(seen.is_sorted_by(|a, b| a < b));
        assert!(world.memory.is_empty());
    });
}

#[test]
fn the_future_of_a_locked_body_can_be_spawned() {
    fn send<T: Send>(_: &T) {}
    let registry = Registry::new();
    let lock = || registry.lock("k");
    send(&lock().acquire());
    send(&lock().try_acquire());
    send(&lock().holders());
    send(&lock().run(|_| async { 1 }));
    send(&registry.shutdown(SECOND));
    send(&dlock_runtime::inherit(async {}));
    send(&annotated("k", SECOND, async { Ok::<(), Failure>(()) }));
    fn of_a_guard(guard: dlock_runtime::Guard) {
        send(&guard);
        send(&guard.lost());
        send(&guard.confirm());
        send(&guard.release());
    }
    let _ = of_a_guard;
}

#[test]
fn the_hand_written_future_stores_the_body_once() {
    let body = |bytes: [u8; 1000]| async move {
        tokio::task::yield_now().await;
        Ok::<_, Failure>(bytes.len())
    };
    let plain = size_of_val(&body([0; 1000]));
    let run = run(site("t", Options::DEFAULT), Call::new(KeyBuilder::new().finish()), body([0; 1000]));
    let locked = size_of_val(&run);
    drop(run);
    assert!(locked <= plain + 128, "{locked} for {plain}");
}

#[test]
fn a_body_that_outlives_its_near_expiry_goes_on() {
    test(async {
        let world = World::new();
        let clock = world.clock.clone();
        let body = move |held: Held| async move {
            for _ in 0..10 {
                clock.advance(5 * SECOND);
                calm().await;
            }
            held.check()
        };
        world.lock("k").run(body).await.unwrap().unwrap();
    });
}
