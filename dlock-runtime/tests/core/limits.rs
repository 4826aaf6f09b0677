//! `timeout` and `on_lost`: the time limit of a body, and the effect of a loss on it.

use std::cell::Cell;

use dlock_runtime::{ErrorKind, OnLost, Renew};

use crate::support::{SECOND, World, calm, freed, full, test};

#[test]
fn a_body_beyond_its_timeout_is_dropped_and_the_lock_is_free() {
    test(async {
        let world = World::new();
        let run = world.lock("k").timeout(5 * SECOND).run(|_| std::future::pending::<()>());
        let error = world.pass_until(SECOND, run).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::BodyTimeout, Some(full("k").as_str())));
        assert!(world.memory.is_empty(), "released in place, before the caller hears of it");
    });
}

#[test]
fn a_body_within_its_timeout_runs_to_its_end_and_there_is_no_timeout_by_default() {
    test(async {
        let world = World::new();
        world.lock("k").timeout(5 * SECOND).run(|_| async {}).await.unwrap();
        let long = async {
            world.clock.sleep_until(world.clock.now().after(1000 * SECOND)).await;
        };
        world.pass_until(SECOND, world.lock("k").run(|_| long)).await.unwrap();
    });
}

#[test]
fn the_wait_does_not_count_for_the_timeout() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let lock = world.lock("k").wait(crate::support::LONG).timeout(5 * SECOND);
        let waiting = tokio::spawn(lock.run(|_| async {}));
        calm().await;
        world.pass(20 * SECOND).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn a_timeout_longer_than_an_unrenewed_hold_is_refused() {
    test(async {
        let world = World::new();
        let run = |timeout| world.lock("k").ttl(10 * SECOND).renew(Renew::Off).timeout(timeout).run(|_| async {});
        let error = run(10 * SECOND).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "timeout"), "{error}");
        run(9 * SECOND).await.unwrap();
    });
}

#[test]
fn a_loss_cancels_the_body_by_default_and_lets_it_end_on_demand() {
    test(async {
        for (on_lost, ends) in [(OnLost::Cancel, false), (OnLost::Continue, true)] {
            let world = World::new();
            let ended = Cell::new(false);
            let body = async {
                world.clock.sleep_until(world.clock.now().after(60 * SECOND)).await;
                ended.set(true);
            };
            let run = world.lock("k").renew(Renew::Off).on_lost(on_lost).run(|_| body);
            let error = world.pass_until(SECOND, run).await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            assert_eq!(ended.get(), ends, "{on_lost:?}");
            // A lost hold is released on our thread.
            world.empty().await;
            freed(&world, "k").await;
        }
    });
}

/// Only a body that began before the loss goes on after it.
#[test]
fn no_body_begins_without_its_lock_even_with_on_lost_continue() {
    test(async {
        for on_lost in [OnLost::Cancel, OnLost::Continue] {
            let world = World::new();
            let begun = Cell::new(false);
            let run = world.lock("k").renew(Renew::Off).on_lost(on_lost).run(|_| {
                world.clock.advance(60 * SECOND);
                async { begun.set(true) }
            });
            let error = run.await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            assert!(!begun.get(), "{on_lost:?}");
            world.empty().await;
        }
    });
}

#[test]
fn a_panic_drops_the_body_before_the_lock() {
    test(async {
        struct Sees<'a>(&'a World, &'a Cell<bool>);
        impl Drop for Sees<'_> {
            fn drop(&mut self) {
                self.1.set(!self.0.memory.is_empty());
            }
        }
        let world = World::new();
        let held = Cell::new(false);
        let sees = Sees(&world, &held);
        let body = async {
            let _sees = sees;
            panic!("on purpose");
        };
        let run = std::panic::AssertUnwindSafe(world.lock("k").run(|_| body));
        assert!(futures::FutureExt::catch_unwind(run).await.is_err());
        assert!(held.get());
        world.empty().await;
    });
}

#[test]
fn a_timeout_is_refused_where_there_is_no_body() {
    test(async {
        let world = World::new();
        let lock = || world.lock("k").timeout(SECOND);
        let all = || world.registry.lock_all(["a", "b"]).timeout(SECOND);
        for error in [
            lock().acquire().await.map(drop).unwrap_err(),
            lock().try_acquire().await.map(drop).unwrap_err(),
            lock().acquire_blocking().map(drop).unwrap_err(),
            lock().run_blocking(|_| ()).unwrap_err(),
            all().acquire().await.map(drop).unwrap_err(),
            all().acquire_blocking().map(drop).unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::ConfigInvalid { field: "timeout".into() }, "{error}");
        }
        lock().run(|_| async {}).await.unwrap();
        assert!(world.memory.is_empty());
    });
}
