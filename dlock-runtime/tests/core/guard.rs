//! Guards that are dropped where nothing can be awaited.

use std::cell::RefCell;

use dlock_runtime::{Clock, ErrorKind, Guard, Key, LossCause, Wait};

use crate::support::{MS, Op, SECOND, Step, World, calm, freed, full, test, until};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn acquire(world: &World) -> Guard {
    runtime().block_on(world.lock("k").acquire()).unwrap()
}

fn empty(world: &World) {
    test(world.empty());
}

#[test]
fn a_dropped_guard_releases_and_says_so() {
    test(async {
        let world = World::new();
        drop(world.lock("k").acquire().await.unwrap());
        world.empty().await;
        world.events.expect("Released", 1).await;
    });
}

#[test]
fn a_guard_dropped_outside_of_any_runtime_releases() {
    let world = World::on(&Clock::system());
    drop(acquire(&world));
    empty(&world);
}

#[test]
fn a_guard_dropped_in_another_thread_releases() {
    let world = World::new();
    let guard = acquire(&world);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    empty(&world);
}

#[test]
fn a_guard_dropped_in_a_threads_destructors_releases() {
    thread_local!(static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) });
    let world = World::new();
    let guard = acquire(&world);
    std::thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(guard))).join().unwrap();
    empty(&world);
}

#[test]
fn a_guard_that_outlives_its_runtime_is_renewed_and_releases() {
    let world = World::new();
    let runtime = runtime();
    let guard = runtime.block_on(world.lock("k").acquire()).unwrap();
    runtime.shutdown_background();
    test(async {
        world.pass(300 * SECOND).await;
        guard.check().unwrap();
        drop(guard);
        world.empty().await;
    });
}

#[test]
fn a_guard_dropped_with_its_runtimes_tasks_releases() {
    let world = World::new();
    let runtime = runtime();
    let guard = runtime.block_on(world.lock("k").acquire()).unwrap();
    runtime.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    runtime.block_on(calm());
    drop(runtime);
    empty(&world);
}

#[test]
fn a_guard_dropped_in_a_panic_releases() {
    let world = World::new();
    let guard = acquire(&world);
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("with a guard in hand");
    });
    assert!(panicked.join().is_err());
    empty(&world);
}

#[test]
fn a_guard_dropped_while_the_store_is_down_is_released_when_it_is_back() {
    test(async {
        let world = World::new();
        world.store.next(Op::Release, [Step::Fail, Step::Fail, Step::Fail]);
        drop(world.lock("k").acquire().await.unwrap());
        world.pass(20 * SECOND).await;
        assert!(world.memory.is_empty());
        assert_eq!(world.store.calls(Op::Release), 4);
        world.events.expect("ReleaseFailed", 1).await;
    });
}

#[test]
fn a_store_that_stays_down_is_not_asked_beyond_the_ttl() {
    test(async {
        let world = World::new();
        world.store.always(Op::Release, Step::Fail);
        drop(world.lock("k").acquire().await.unwrap());
        world.pass(60 * SECOND).await;
        let calls = world.store.calls(Op::Release);
        world.pass(600 * SECOND).await;
        assert_eq!(world.store.calls(Op::Release), calls);
    });
}

/// Where the store would keep the lock for ever, we go on for as long as it takes.
#[test]
fn a_store_without_expiry_is_asked_to_release_until_it_answers() {
    test(async {
        let world = World::with(&Clock::manual(), |caps| caps.expires_alone = false);
        world.store.always(Op::Release, Step::Fail);
        drop(world.lock("k").acquire().await.unwrap());
        world.pass(600 * SECOND).await;
        assert!(world.store.calls(Op::Release) > 40);
        world.store.always(Op::Release, Step::Pass);
        world.pass(10 * SECOND).await;
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_late_release_frees_nobody_elses_lock() {
    test(async {
        let world = World::new();
        let old = world.lock("k").acquire().await.unwrap();
        world.memory.forget(&full("k"));
        world.pass(11 * SECOND).await;
        assert_eq!(old.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
        let new = world.lock("k").acquire().await.unwrap();
        drop(old);
        calm().await;
        until("the late release was told", || world.store.calls(Op::Release) == 1).await;
        new.confirm().await.unwrap();
        new.release().await.unwrap();
    });
}

#[test]
fn the_debug_text_of_a_guard_has_no_secret() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let shown = format!("{guard:?}");
        assert!(shown.contains(full("k").as_str()) && shown.contains("held: true"), "{shown}");
        assert!(!shown.to_lowercase().contains("owner"), "{shown}");
    });
}

#[test]
fn the_checks_of_a_released_guard_say_that_its_hold_is_over() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        let look = dlock_runtime::Held::clone(&guard);
        guard.release().await.unwrap();
        assert!(look.check().unwrap_err().is_lost());
        assert!(look.confirm().await.is_err());
        assert!(look.remaining().is_zero());
        freed(&world, "k").await;
        assert_eq!(world.store.calls(Op::Renew), 0);
        world.pass(10 * MS).await;
    });
}

#[test]
fn no_debug_text_shows_a_sensitive_key() {
    test(async {
        let world = World::new();
        let secret = || Key::text("patient:").value("Ann Lee");
        let lock = || world.registry.lock(secret()).sensitive();
        let all = || world.registry.lock_all([secret(), Key::from("b")]).sensitive();
        let guard = lock().acquire().await.unwrap();
        let id = world.registry.held()[0].id;
        let of_one = [
            format!("{:?}", lock()),
            format!("{:?}", lock().break_hold(id)),
            format!("{guard:?}"),
            format!("{:?}", *guard),
            format!("{:?}", guard.fence()),
            format!("{:?}", lock().wait(Wait::None).acquire().await.unwrap_err()),
        ];
        guard.release().await.unwrap();
        let of_several = [format!("{:?}", all()), format!("{:?}", all().acquire().await.unwrap())];
        for text in of_one.iter().chain(&of_several) {
            assert!(text.contains("sha256:") && !text.contains("Ann") && !text.contains("Lee"), "{text}");
        }
        assert!(format!("{:?}", world.registry.lock(secret())).contains("patient:<Ann%20Lee>"));
    });
}
