//! Bodies that panic and bodies that block, and the end of a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dlock::ErrorKind;

use crate::arena::{Arena, JOB, PATIENCE, TTL, job, tried};

/// A ttl that no trial waits for. If the lock is free before, it was released.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// The other process ends as the README shows it.
pub(super) fn the_end_of_main_leaves_no_lock(arena: &Arena) {
    arena.run(async {
        arena.child("end").wait_line("ends", PATIENCE).unwrap();
        arena.assert_nothing_left().await;
        for key in [JOB, "one", "another", "body"] {
            arena.near().await.lock(key).ttl(TTL).acquire().await.unwrap().release().await.unwrap();
        }
    });
}

pub(super) fn a_panic_releases(arena: &Arena) {
    const WORDS: &str = "the body's own panic, as this trial wants it";
    arena.run(async {
        let (first, second) = (arena.near().await, arena.near().await);
        let call = job(&first).ttl(LONG).run(|held| async move {
            tokio::task::yield_now().await;
            held.check().unwrap();
            // A panic without its message: a reader of the output would look for a failure there.
            std::panic::resume_unwind(Box::new(WORDS));
        });
        let panic = tokio::spawn(call).await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&WORDS));
        job(&second).acquire().await.unwrap().release().await.unwrap();
        arena.assert_nothing_left().await;
    });
}

pub(super) fn a_blocking_body_keeps_the_lock(arena: &Arena) {
    let (first, second) = {
        let mut both = None;
        arena.run(async { both = Some((arena.near().await, arena.near().await)) });
        both.unwrap()
    };
    thread::scope(|scope| {
        let (started, wait) = std::sync::mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let body = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(job(&first).run(|held| async move {
                started.send(()).unwrap();
                thread::sleep(TTL * 3);
                end.store(true, Ordering::SeqCst);
                held.check()
            }))
        });
        wait.recv().unwrap();
        arena.run(async {
            while !body.is_finished() {
                match tried(|| job(&second)).await {
                    Err(error) => assert_eq!(*error.kind(), ErrorKind::Busy, "{error}"),
                    Ok(_guard) => assert!(ended.load(Ordering::SeqCst), "two holders"),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        // The outer result says that the lock was held to the end, and the inner one that the body knew this.
        body.join().unwrap().unwrap().unwrap();
    });
    arena.run(arena.assert_nothing_left());
}
