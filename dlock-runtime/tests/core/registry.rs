//! Names of stores, defaults, and the notes of holders.

use dlock_memory::Memory;
use dlock_runtime::{ErrorKind, Registry, Wait};

use crate::support::{Op, SECOND, Step, World, full, test};

#[test]
fn the_error_about_an_unknown_store_lists_the_known_ones() {
    test(async {
        let world = World::new();
        world.registry.install("b", Memory::new()).unwrap();
        let error = world.lock("k").backend("nope").acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::BackendNotRegistered { known: vec!["b".into(), "m".into()] });
        assert!(error.to_string().contains("installed: b, m"), "{error}");
        assert_eq!((error.key(), error.backend()), (Some("k"), None));
        assert!(world.registry.set_default("nope").is_err());
    });
}

#[test]
fn the_name_of_a_store_can_be_taken_once() {
    test(async {
        let world = World::new();
        let error = world.registry.install("m", Memory::new()).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::AlreadyRegistered);
        let error =
            world.registry.install_opened("m", async { unreachable!("the name is refused first") }).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::AlreadyRegistered);
        for name in ["", "a\nb"] {
            let error = world.registry.install(name, Memory::new()).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "name".into() });
        }
    });
}

#[test]
fn the_only_backend_is_the_default_and_one_of_several_is_not() {
    test(async {
        let registry = Registry::new();
        let error = registry.lock("k").acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::BackendNotRegistered { known: vec![] });
        assert!(error.to_string().contains("dlock::connect"), "{error}");
        registry.install("one", Memory::new()).unwrap();
        let guard = registry.lock("k").acquire().await.unwrap();
        assert_eq!(guard.backend(), "one");
        guard.release().await.unwrap();
        registry.install("two", Memory::new()).unwrap();
        let error = registry.lock("k").acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::BackendNotRegistered { known: vec!["one".into(), "two".into()] });
        assert!(error.to_string().contains("set_default") && error.to_string().contains("one, two"), "{error}");
        let several = registry.lock_all(["k", "l"]).acquire().await.unwrap_err();
        let asked = registry.lock("k").holders().await.unwrap_err();
        assert_eq!([error.key(), several.key(), asked.key()], [Some("k"); 3]);
        registry.set_default("two").unwrap();
        assert_eq!(registry.lock("k").acquire().await.unwrap().backend(), "two");
        registry.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn defaults_hold_for_options_that_are_not_set() {
    test(async {
        let world = World::new().configure(|defaults| {
            defaults.ttl = 9 * SECOND;
            defaults.wait = Wait::None;
        });
        let guard = world.lock("k").acquire().await.unwrap();
        assert_eq!(guard.granted(), 9 * SECOND);
        assert_eq!(world.lock("k").acquire().await.unwrap_err().kind(), &ErrorKind::Busy);
        let error = world.lock("k").ttl(std::time::Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!((error.key(), error.backend()), (Some("k"), Some("m")), "{error}");
        assert!(world.registry.configure(|defaults| defaults.max_hold = SECOND).is_err());
        assert!(world.registry.configure(|defaults| defaults.namespace = "a b".into()).is_err());
        // A refused change has changed nothing.
        assert_eq!(world.lock("other").acquire().await.unwrap().granted(), 9 * SECOND);
    });
}

#[test]
fn the_holder_is_noted_with_its_site_and_trace() {
    test(async {
        let world = World::new();
        world.registry.trace_with(|| Some("4bf9".into()));
        assert!(world.lock("k").holders().await.unwrap().note().cloned().is_none());
        let guard = world.lock("k").name("shop::deduct").acquire().await.unwrap();
        let note = world.lock("k").holders().await.unwrap().note().cloned().unwrap();
        assert_eq!(
            (note.site(), note.trace(), note.pid()),
            (Some("shop::deduct"), Some("4bf9"), Some(std::process::id()))
        );
        guard.release().await.unwrap();
        let _unnamed = world.lock("k").acquire().await.unwrap();
        let note = world.lock("k").holders().await.unwrap().note().cloned().unwrap();
        assert!(note.site().unwrap().contains("tests/core/registry.rs:"), "{note}");
    });
}

/// A bad trace id from the user's hook must not prevent the lock.
#[test]
fn a_trace_hook_that_panics_is_no_trace() {
    test(async {
        let world = World::new();
        world.registry.trace_with(|| panic!("in the hook"));
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_store_with_a_connection_per_hold_is_only_called_on_our_thread() {
    test(async {
        let world =
            World::with(&dlock_runtime::Clock::manual(), |profile| profile.runs_on = dlock_contract::RunsOn::OwnThread);
        let guard = world.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(world.lock("k").acquire());
        world.pass(30 * SECOND).await;
        guard.confirm().await.unwrap();
        drop(guard);
        assert!(waiting.await.unwrap().is_err());
        world.store.next(Op::Acquire, [Step::Fail]);
        let again = world.lock("k").try_acquire().await;
        assert!(again.is_err());
        world.empty().await;
        assert_eq!(world.store.threads(), ["dlock"]);
        assert!(world.store.calls(Op::Release) > 0 && world.store.calls(Op::Renew) > 0);
    });
}

#[test]
fn a_store_with_shared_connections_is_called_in_place() {
    test(async {
        let world = World::new();
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
        assert!(!world.store.threads().contains(&"dlock".to_owned()));
    });
}

/// In its closure the registry can be asked for anything but another change, and locks go on.
#[test]
fn a_change_of_the_defaults_holds_up_nobody_and_none_is_lost() {
    test(async {
        let world = World::new();
        let registry = &world.registry;
        let change = |defaults: &mut dlock_runtime::Defaults| {
            let key = registry.lock("k").acquire_blocking().unwrap().key().clone();
            assert_eq!(key, full("k"));
            let error = registry.configure(|_| {}).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::WouldDeadlock);
            let other = Registry::new();
            other.configure(|_| {}).unwrap();
            defaults.namespace = "changed".into();
        };
        registry.configure(change).unwrap();
        let changed = dlock_runtime::LockKey::new("changed", dlock_runtime::Key::text("l")).unwrap();
        assert_eq!(*registry.lock("l").acquire().await.unwrap().key(), changed);
        // A change that fails lets the next change through, however it fails.
        registry.configure(|defaults| defaults.max_waiters = 0).unwrap_err();
        let panics = || registry.configure(|_| panic!("inside"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        registry.configure(|defaults| defaults.max_waiters = 1).unwrap();
        let counts = |_| {
            for _ in 0..50 {
                let change = |defaults: &mut dlock_runtime::Defaults| {
                    let waiters = defaults.max_waiters;
                    std::thread::yield_now();
                    defaults.max_waiters = waiters + 1;
                };
                registry.configure(change).unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).map(|n| scope.spawn(move || counts(n))).for_each(drop));
        registry.configure(|defaults| assert_eq!(defaults.max_waiters, 201)).unwrap();
    });
}
