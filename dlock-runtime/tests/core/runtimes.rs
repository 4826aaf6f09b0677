//! Locks on any runtime, on several, and on none.

use std::process::Command;

use dlock_runtime::{Clock, ErrorKind, Wait};
use dlock_store::PerRuntime;
use futures::executor::block_on;

use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, full, test};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn two_runtimes_one_after_the_other_share_a_registry() {
    let world = World::new();
    for _ in 0..3 {
        let runtime = runtime();
        runtime.block_on(async {
            let guard = world.lock("k").acquire().await.unwrap();
            world.pass(60 * SECOND).await;
            guard.release().await.unwrap();
        });
    }
    assert!(world.memory.is_empty());
}

#[test]
fn a_waiter_of_one_runtime_gets_what_another_releases() {
    let world = World::new();
    let (one, other) = (runtime(), runtime());
    let held = one.block_on(world.lock("k").acquire()).unwrap();
    let lock = world.lock("k").wait(LONG);
    let waiting = std::thread::spawn(move || other.block_on(lock.acquire()).map(drop));
    one.block_on(calm());
    one.block_on(held.release()).unwrap();
    waiting.join().unwrap().unwrap();
    test(world.empty());
}

#[test]
fn a_foreign_executor_locks_over_our_thread() {
    let world = World::on(&Clock::system());
    let guard = block_on(world.lock("k").acquire()).unwrap();
    let waits = || block_on(world.lock("k").wait(Wait::UpTo(20 * MS)).acquire()).unwrap_err();
    // Our thread may be late on a busy machine, which is an outage.
    let error = std::iter::repeat_with(waits).take(10).find(|error| *error.kind() != ErrorKind::Outage);
    let error = error.expect("no wait had an answer in time: nothing is proven");
    assert_eq!(error.kind().as_str(), "wait_timeout");
    block_on(guard.confirm()).unwrap();
    block_on(guard.release()).unwrap();
    assert_eq!(block_on(world.lock("k").run(|_| async { 7 })).unwrap(), 7);
    assert_eq!(world.store.threads(), ["dlock"]);
    test(world.empty());
}

#[test]
fn a_foreign_executor_is_handed_the_lock_by_the_store() {
    let (world, stranger) = crate::acquire::neighbours();
    let held = block_on(stranger.lock("k").acquire()).unwrap();
    let lock = world.lock("k").wait(LONG);
    let waiting = std::thread::spawn(move || block_on(lock.acquire()).map(drop));
    test(crate::support::until("it stands in line", || world.store.calls(Op::Acquire) == 1));
    block_on(held.release()).unwrap();
    waiting.join().unwrap().unwrap();
    assert_eq!(world.store.calls(Op::Acquire), 1, "the news was the lock itself");
    test(world.empty());
}

/// A panic of a backend reaches the caller, where it can be caught, and nothing is left behind.
#[test]
fn a_backend_that_panics_leaves_nothing() {
    let world = World::new();
    world.store.next(Op::Acquire, [Step::Panic]);
    let error = block_on(world.lock("k").acquire()).unwrap_err();
    assert_eq!((error.kind().as_str(), error.key()), ("internal", Some(full("k").as_str())));
    test(async {
        world.store.next(Op::Acquire, [Step::Panic]);
        assert!(tokio::spawn(world.lock("k").acquire()).await.unwrap_err().is_panic());
        world.empty().await;
        world.lock("k").acquire().await.unwrap().release().await.unwrap();
    });
}

/// Needs a process in which nothing of dlock's has run yet.
#[test]
fn the_first_thing_of_a_process_may_be_a_sleep_on_its_clock() {
    const CHILD: &str = "DLOCK_CORE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let clock = Clock::system();
        block_on(clock.sleep_until(clock.now().after(MS)));
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runtimes::the_first_thing_of_a_process_may_be_a_sleep_on_its_clock"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begin = std::time::Instant::now();
    while begin.elapsed() < 20 * SECOND && child.try_wait().unwrap().is_none() {
        std::thread::sleep(5 * MS);
    }
    // A runtime that has ended cannot use it.
    let _ = child.kill();
    assert!(child.wait().unwrap().success(), "the sleep never ended");
}

/// A destructor that asks while its runtime is being taken down, as a user's `Drop` may.
#[test]
fn a_value_asked_for_in_a_dying_runtime_does_not_hang() {
    struct Asks(std::sync::Arc<PerRuntime<u32>>, std::sync::mpsc::Sender<bool>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let opened = block_on(self.0.get(|| async { Ok(1) }));
            let _ = self.1.send(opened.is_ok());
        }
    }
    let (values, (said, heard)) = (std::sync::Arc::new(PerRuntime::new()), std::sync::mpsc::channel());
    let asks = Asks(values.clone(), said);
    let dying = std::thread::spawn(move || {
        let runtime = runtime();
        let origin = runtime.block_on(async { dlock_contract::Origin::here().unwrap() });
        runtime.spawn(async move {
            let _asks = asks;
            std::future::pending::<()>().await;
        });
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
        values.peek(origin).is_none()
    });
    assert!(heard.recv_timeout(20 * SECOND).is_ok(), "it hangs");
    assert!(dying.join().unwrap(), "nothing is kept for a runtime that is gone");
}

#[test]
fn values_of_a_runtime_that_were_cleared_are_opened_again_and_kept() {
    let values = PerRuntime::new();
    test(async {
        assert_eq!(values.get(|| async { Ok(1) }).await.unwrap().value, 1);
        values.clear();
        assert_eq!(values.get(|| async { Ok(2) }).await.unwrap().value, 2);
        // The task of the first value has ended by now; it must not take the second one along.
        calm().await;
        assert_eq!(values.get(|| async { Ok(3) }).await.unwrap().value, 2);
    });
}
