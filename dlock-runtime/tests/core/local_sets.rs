//! Blocking callers beside a `LocalSet`, and on workers that look like its thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use dlock_runtime::{Clock, ErrorKind, Guard, Wait};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::support::{MS, World, test};

fn world() -> Arc<World> {
    Arc::new(World::on(&Clock::system()))
}

/// A guard that no task of a runtime has acquired.
fn stranger(world: &Arc<World>) -> Guard {
    let world = world.clone();
    std::thread::spawn(move || world.lock("k").acquire_blocking().unwrap()).join().unwrap()
}

/// Releases the guard once somebody waits for it.
async fn released_once_awaited(world: &World, held: Guard) {
    // One more waiter is one too many once there is one.
    let one_more = || world.lock("k").wait(Wait::UpTo(MS)).max_waiters(1).acquire();
    while *one_more().await.unwrap_err().kind() == ErrorKind::WaitTimeout {}
    held.release().await.unwrap();
}

#[test]
fn a_worker_named_main_waits_as_every_worker_does() {
    let world = world();
    let held = stranger(&world);
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("main").enable_all().build().unwrap();
    let lock = world.lock("k").wait(Wait::Forever);
    let blocked = runtime.spawn(async move { lock.run_blocking(|_| ()) });
    test(released_once_awaited(&world, held));
    runtime.block_on(blocked).unwrap().unwrap();
}

/// Runs a test with a `LocalSet` that a multi-thread runtime drives on a thread of its own, and counts the panics there.
fn on_a_local_set(work: impl AsyncFnOnce() + Send + 'static) {
    const NAME: &str = "drives a LocalSet";
    let panicked = Arc::new(AtomicBool::new(false));
    let (seen, others) = (panicked.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| match std::thread::current().name() {
        Some(NAME) => seen.store(true, Ordering::SeqCst),
        _ => others(info),
    }));
    let drives = move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, work());
    };
    let (done, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name(NAME.to_owned());
    let thread = thread.spawn(move || {
        drives();
        let _ = done.send(());
    });
    ended.recv_timeout(std::time::Duration::from_secs(40)).expect("it hangs, or has failed");
    thread.unwrap().join().unwrap();
    assert!(!panicked.load(Ordering::SeqCst), "tokio has panicked");
}

#[test]
fn a_blocking_call_beside_a_local_set_is_refused_only_if_it_would_park_the_holder() {
    let world = world();
    on_a_local_set(async move || {
        let asks = || world.lock("k").wait(Wait::Forever);
        // Acquired here: async in another task, blocking in another task, by a waiter before this one.
        let (one, other) = (asks(), asks());
        let held = tokio::task::spawn_local(async move { one.acquire().await.unwrap() }).await.unwrap();
        let blocks = async move { other.acquire_blocking().map(drop) };
        let refused = |told: dlock_runtime::Result<()>| assert_eq!(told.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
        refused(tokio::task::spawn_local(blocks).await.unwrap());
        held.release().await.unwrap();
        let (one, other) = (asks(), asks());
        let held = tokio::task::spawn_local(async move { one.acquire_blocking().unwrap() }).await.unwrap();
        refused(tokio::task::spawn_local(async move { other.acquire_blocking().map(drop) }).await.unwrap());
        held.release().await.unwrap();
        // Acquired elsewhere, and released elsewhere once this thread sleeps.
        let held = stranger(&world);
        let releasing = world.clone();
        let elsewhere = std::thread::spawn(move || test(released_once_awaited(&releasing, held)));
        let lock = asks();
        tokio::task::spawn_local(async move { lock.run_blocking(|_| ()) }).await.unwrap().unwrap();
        elsewhere.join().unwrap();
        // A waiter before it.
        let held = stranger(&world);
        let lock = asks();
        let waiter = tokio::task::spawn_local(async move { lock.acquire().await.map(drop) });
        tokio::task::yield_now().await;
        let lock = asks();
        refused(tokio::task::spawn_local(async move { lock.acquire_blocking().map(drop) }).await.unwrap());
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap();
    });
}

#[test]
fn a_blocking_holder_on_the_only_thread_of_a_runtime_is_seen_too() {
    test(async {
        let world = world();
        let held = world.lock("k").acquire_blocking().unwrap();
        let told = world.lock("k").wait(Wait::Forever).acquire_blocking().map(drop).unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        held.release_blocking().unwrap();
        world.lock("k").run_blocking(|_| ()).unwrap();
    });
}
