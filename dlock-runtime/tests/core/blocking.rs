//! Callers that are not async: on every kind of thread, and on threads where they would park the holder.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Builder;

use dlock_runtime::{Clock, ErrorKind, Mode, Wait, current};

use crate::support::{MS, Op, SECOND, World, block_for_three_ttls, freed, full, poll_once, test};

fn world() -> World {
    World::on(&Clock::system())
}

#[test]
fn a_blocking_call_works_without_a_runtime() {
    let world = world();
    let guard = world.lock("k").acquire_blocking().unwrap();
    let busy = world.lock("k").wait(Wait::None).acquire_blocking().unwrap_err();
    assert_eq!(busy.kind(), &ErrorKind::Busy);
    guard.release_blocking().unwrap();
    let key = world.lock("k").run_blocking(|_| current().unwrap().key().clone()).unwrap();
    assert_eq!(key, full("k"));
    assert!(current().is_none() && world.memory.is_empty());
}

#[test]
fn blocking_threads_exclude_each_other() {
    let world = Arc::new(world());
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (world, inside) = (world.clone(), inside.clone());
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let body = |_| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    };
                    world.lock("k").wait(Wait::Forever).run_blocking(body).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_blocking_call_works_inside_of_every_runtime() {
    let take = || {
        let world = world();
        world.lock("k").run_blocking(|_| ()).unwrap();
    };
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    single.block_on(async { take() });
    tokio::task::LocalSet::new()
        .block_on(&single, async { tokio::task::spawn_local(async move { take() }).await.unwrap() });
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    several.block_on(async { tokio::spawn(async move { take() }).await.unwrap() });
    several.block_on(async { tokio::task::spawn_blocking(take).await.unwrap() });
}

#[test]
fn a_blocking_call_that_would_park_the_holders_only_thread_fails_at_once() {
    test(async {
        let world = world();
        let _held = world.lock("k").acquire().await.unwrap();
        let told = world.lock("k").wait(Wait::Forever).acquire_blocking().unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
    });
}

/// Where a guard has gone cannot be seen, and a refusal is better than a thread that sleeps for ever.
#[test]
fn a_guard_counts_for_its_first_thread_also_once_it_was_moved() {
    test(async {
        let world = world();
        let held = world.lock("k").acquire().await.unwrap();
        let (release, wait) = std::sync::mpsc::channel();
        let elsewhere = std::thread::spawn(move || {
            wait.recv().unwrap();
            held.release_blocking().unwrap();
        });
        let told = world.lock("k").wait(Wait::Forever).acquire_blocking().unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        release.send(()).unwrap();
        elsewhere.join().unwrap();
        world.lock("k").wait(Wait::Forever).acquire_blocking().unwrap().release_blocking().unwrap();
    });
}

#[test]
fn a_blocking_call_that_would_park_the_holder_of_one_of_several_keys_fails_too() {
    test(async {
        let world = world();
        let _held = world.lock("b").acquire().await.unwrap();
        let several = world.registry.lock_all(["a", "b"]).wait(Wait::UpTo(20 * SECOND));
        assert_eq!(several.acquire_blocking().map(drop).unwrap_err().kind(), &ErrorKind::WouldDeadlock);
        freed(&world, "a").await;
    });
}

#[test]
fn a_blocking_call_that_would_park_the_waiter_before_it_fails_too() {
    test(async {
        let world = Arc::new(world());
        let stranger = {
            let world = world.clone();
            std::thread::spawn(move || world.lock("k").acquire_blocking().unwrap()).join().unwrap()
        };
        let asking = world.lock("k").wait(Wait::Forever);
        let waiting = tokio::spawn(async move { asking.acquire().await.map(drop) });
        tokio::task::yield_now().await;
        let told = world.lock("k").wait(Wait::Forever).acquire_blocking().unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        stranger.release_blocking().unwrap();
        waiting.await.unwrap().unwrap();
    });
}

/// It waits for the release of a neighbour, as one before it does, and has neither a turn nor a place in the store's
/// line.
#[test]
fn a_blocking_call_that_would_park_a_waiter_behind_neighbours_fails_too() {
    test(async {
        let world = Arc::new(world());
        let threads = world.clone();
        // Outside of any runtime.
        let (held, mut first) = std::thread::spawn(move || {
            let held = threads.lock("k").acquire_blocking().unwrap();
            let mut first = Box::pin(threads.lock("k").wait(Wait::Forever).acquire());
            assert!(poll_once(&mut first).is_pending());
            (held, first)
        })
        .join()
        .unwrap();
        let asking = world.lock("k").wait(Wait::Forever);
        let waiting = tokio::spawn(async move { asking.acquire().await.map(drop) });
        tokio::task::yield_now().await;
        assert_eq!(world.store.calls(Op::Acquire), 1);
        let told = world.lock("k").wait(Wait::UpTo(SECOND)).acquire_blocking().unwrap_err();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        assert!(poll_once(&mut first).is_pending());
        drop(first);
        held.release_blocking().unwrap();
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn a_reader_on_this_thread_is_seen_although_it_keeps_no_turn() {
    test(async {
        let world = World::with(&Clock::system(), |can| can.read_write = true);
        let Ok(_reader) = world.lock("k").mode(Mode::Read).acquire().await else { panic!("free") };
        let writer = world.lock("k").mode(Mode::Write).wait(Wait::Forever);
        assert_eq!(writer.acquire_blocking().unwrap_err().kind(), &ErrorKind::WouldDeadlock);
    });
}

#[test]
fn a_thread_of_spawn_blocking_may_wait_for_a_task_of_the_same_runtime() {
    test(async {
        let world = world();
        let held = world.lock("k").acquire().await.unwrap();
        let lock = world.lock("k").wait(Wait::Forever);
        let other = tokio::task::spawn_blocking(move || lock.run_blocking(|_| ()));
        // One more waiter would be one too many once the thread waits.
        let one_more = || world.lock("k").wait(Wait::UpTo(MS)).max_waiters(1).acquire();
        while *one_more().await.unwrap_err().kind() == ErrorKind::WaitTimeout {}
        held.release().await.unwrap();
        other.await.unwrap().unwrap();
    });
}

/// A runtime whose only worker is blocked has no timer left that could end a test.
fn bounded(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let working = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let hangs = ended.recv_timeout(40 * SECOND) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "it hangs");
    working.join().unwrap();
}

/// As many blocking callers as workers, and one of them has to go on with the holder.
#[test]
fn blocking_callers_leave_no_worker_without_its_other_tasks() {
    bounded(|| {
        for workers in [1, 2] {
            let world = Arc::new(world());
            let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
            let all = async {
                let (go, gone) = tokio::sync::oneshot::channel();
                let (holds, held) = tokio::sync::oneshot::channel();
                let holding = world.clone();
                let holder = tokio::spawn(async move {
                    let guard = holding.lock("k").acquire().await.unwrap();
                    holds.send(()).unwrap();
                    gone.await.unwrap();
                    guard.release().await.unwrap();
                });
                held.await.unwrap();
                let blocked = (0..workers).map(|_| {
                    let lock = world.lock("k").wait(Wait::Forever);
                    tokio::spawn(async move { lock.run_blocking(|_| ()) })
                });
                let blocked: Vec<_> = blocked.collect();
                crate::support::until("they wait", || world.store.calls(Op::Acquire) > 1).await;
                tokio::spawn(tokio::task::yield_now()).await.unwrap();
                go.send(()).unwrap();
                holder.await.unwrap();
                for blocked in blocked {
                    blocked.await.unwrap().unwrap();
                }
            };
            runtime.block_on(all);
        }
    });
}

#[test]
fn a_blocking_call_in_a_local_task_on_the_holders_thread_fails_at_once() {
    bounded(|| {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let set = tokio::task::LocalSet::new();
        runtime.block_on(set.run_until(async {
            let world = Arc::new(world());
            let held = world.lock("k").acquire().await.unwrap();
            let lock = world.lock("k").wait(Wait::Forever);
            let told = tokio::task::spawn_local(async move { lock.acquire_blocking().map(drop) }).await.unwrap();
            assert_eq!(told.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
            held.release().await.unwrap();
            // The wait has left nothing behind, and a lock that is free is had.
            world.empty().await;
            let lock = world.lock("k");
            tokio::task::spawn_local(async move { lock.run_blocking(|_| ()) }).await.unwrap().unwrap();
        }));
    });
}

/// The ways to wait for a lock with the present thread.
fn blocking_ways(world: &World) -> [Box<dyn FnOnce() -> dlock_runtime::Result<()> + Send>; 3] {
    let (blocking, polled, none) = (world.lock("k"), world.lock("k"), world.lock("k").wait(Wait::None));
    [
        Box::new(move || blocking.run_blocking(|_| ())),
        Box::new(move || futures::executor::block_on(polled.acquire()).map(drop)),
        Box::new(move || none.acquire_blocking().map(drop)),
    ]
}

#[test]
fn a_blocking_call_on_the_thread_of_dlock_fails_at_once() {
    let world = world();
    for way in blocking_ways(&world) {
        let (say, said) = std::sync::mpsc::channel();
        dlock_store::background().unwrap().spawn(async move { say.send(way()).unwrap() });
        let told = said.recv_timeout(20 * SECOND).expect("the thread `dlock` hangs");
        assert_eq!(told.unwrap_err().kind(), &ErrorKind::WouldDeadlock);
    }
    world.lock("k").run_blocking(|_| ()).unwrap();
}

/// Locks in its `wake`, in one way or the other.
struct Locks(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::task::Wake for Locks {
    fn wake(self: Arc<Self>) {
        if let Some(lock) = self.0.lock().unwrap().take() {
            lock();
        }
    }
}

#[test]
fn a_waker_may_take_a_lock() {
    let world = world();
    for way in blocking_ways(&world) {
        let (say, said) = std::sync::mpsc::channel();
        let wakes = Locks(Mutex::new(Some(Box::new(move || say.send(way()).unwrap()))));
        let clock = Clock::system();
        let mut sleep = Box::pin(clock.sleep_until(clock.now().after(MS)));
        let waker = std::task::Waker::from(Arc::new(wakes));
        assert!(sleep.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        said.recv_timeout(20 * SECOND).expect("nobody wakes").unwrap();
    }
}

#[test]
fn a_loss_does_not_stop_a_blocking_body_and_is_reported() {
    let world = World::new();
    let lock = world.lock("k").ttl(SECOND).renew(dlock_runtime::Renew::Off);
    let ran = lock.run_blocking(|held| {
        assert!(held.check().is_ok());
        world.clock.advance(SECOND);
        assert!(held.check().unwrap_err().is_lost());
    });
    assert!(ran.unwrap_err().is_lost());
}

#[test]
fn a_body_that_blocks_for_longer_than_the_ttl_keeps_its_lock() {
    let world = World::new();
    world.lock("k").ttl(6 * SECOND).run_blocking(|held| block_for_three_ttls(&world, &held)).unwrap();
}

#[test]
fn a_panic_in_a_blocking_body_releases_and_goes_on() {
    test(async {
        let world = world();
        let lock = world.lock("k");
        let panic = std::thread::spawn(move || lock.run_blocking(|_| panic!("on purpose"))).join();
        assert!(panic.is_err());
        world.empty().await;
        freed(&world, "k").await;
    });
}

#[test]
fn a_nested_blocking_call_fails_or_joins() {
    let world = world();
    let (inner, joining) = (world.lock("k").wait(Wait::Forever), world.lock("k").reentrant(true));
    world
        .lock("k")
        .run_blocking(|_| {
            assert_eq!(inner.acquire_blocking().unwrap_err().kind(), &ErrorKind::WouldDeadlock);
            joining.run_blocking(|_| ()).unwrap();
        })
        .unwrap();
}

#[test]
fn a_blocking_call_takes_several_keys() {
    let world = world();
    let guards = world.registry.lock_all(["b", "a"]).acquire_blocking().unwrap();
    assert_eq!(guards.held().count(), 2);
    drop(guards);
}

#[test]
fn a_limit_for_a_body_that_cannot_be_stopped_is_refused() {
    let error = world().lock("k").timeout(MS).run_blocking(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "timeout"), "{error}");
}
