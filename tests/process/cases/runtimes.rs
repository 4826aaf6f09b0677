//! Runtimes that end: in the middle of a hold, and one after another in one process, as `#[tokio::test]` makes them.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use super::own_process::LONG;
use crate::arena::{Arena, TTL, answered, is_busy, job};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(super) fn a_runtime_shut_down_during_a_hold_frees_it(arena: &Arena) {
    let many = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for runtime in [many(), current_thread()] {
        let first = runtime.block_on(arena.near());
        let (held, holds) = tokio::sync::oneshot::channel();
        runtime.spawn(job(&first).run(|_| async move {
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        }));
        runtime.block_on(holds).unwrap();
        let ended = Instant::now();
        runtime.shutdown_background();
        arena.run(async {
            let next = arena.near().await;
            let guard = job(&next).acquire().await.unwrap();
            arena.assert_in_time(ended);
            guard.release().await.unwrap();
        });
    }
    arena.run(arena.assert_nothing_left());
}

pub(super) fn a_guard_outlives_its_runtime(arena: &Arena) {
    let runtime = current_thread();
    let first = runtime.block_on(arena.near());
    let guard = runtime.block_on(job(&first).acquire()).unwrap();
    drop(runtime);
    // Renewed all the same, by a thread that is not the user's.
    std::thread::sleep(TTL * 2);
    guard.check().unwrap();
    arena.run(async {
        let next = arena.near().await;
        is_busy(|| job(&next)).await;
        let waiting = tokio::spawn(job(&next).acquire());
        arena.until_waiting(&next, 1).await;
        let dropped = Instant::now();
        // Outside of any runtime.
        std::thread::spawn(move || drop(guard)).join().unwrap();
        let guard = waiting.await.unwrap().unwrap();
        arena.assert_in_time(dropped);
        guard.release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn two_runtimes_share_one_registry(arena: &Arena) {
    let first = current_thread();
    let registry = first.block_on(arena.near());
    let job = || job(&registry).ttl(LONG);
    let (mut last, mut held) = (0, None);
    for runtime in
        [first, current_thread(), Builder::new_multi_thread().enable_all().build().unwrap(), current_thread()]
    {
        runtime.block_on(async {
            // The lock of the previous runtime is released in this one.
            if let Some(guard) = held.take() {
                dlock::Guard::release(guard).await.unwrap();
            }
            for _ in 0..3 {
                let guard = job().acquire().await.unwrap();
                let token = guard.fence().unwrap().get();
                assert!(token > last);
                last = token;
                answered(async || guard.confirm().await).await.unwrap();
                guard.release().await.unwrap();
            }
            // A task that is cut off in the middle of a wait.
            let guard = job().acquire().await.unwrap();
            last = guard.fence().unwrap().get();
            tokio::spawn(job().acquire());
            tokio::task::yield_now().await;
            held = Some(guard);
        });
    }
    arena.run(async {
        drop(held);
        job().acquire().await.unwrap().release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}
