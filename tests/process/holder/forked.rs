//! Forks while it holds and while it waits. Nothing that the child does with its copies may reach the store.

use std::future::Future;
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlock::{Conflict, Error, ErrorKind, Guard, Result, Wait};
use fork::Fork;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::arena::{JOB, PATIENCE, answered};

/// The lock that another process holds.
pub(crate) const OTHER: &str = "other";

const TTL: Duration = Duration::from_secs(4);

/// A child has this long; only one that hangs needs it.
const CHILD: Duration = Duration::from_secs(120);

pub(super) async fn forks() {
    let lock = |key: &'static str| dlock::lock(key).ttl(TTL).wait(Wait::UpTo(PATIENCE));
    let guard = lock(JOB).acquire().await.unwrap();
    let mut waiting = Box::pin(lock(OTHER).acquire());
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "it is held");
    println!("holds");

    if is_child("drops a guard") {
        drop(guard);
        exit(0);
    }
    is_held(&guard).await;
    if is_child("releases a guard") {
        exit(refused(guard.release()).await);
    }
    is_held(&guard).await;
    if is_child("confirms") {
        exit(refused(guard.confirm()).await);
    }
    is_held(&guard).await;
    if is_child("acquires") {
        exit(refused(lock("third").acquire()).await);
    }
    let mut watch = dlock::elect("watched").observe().unwrap();
    assert!(answered(async || watch.changed().await).await.unwrap().is_none(), "nobody leads");
    if is_child("watches an election") {
        exit(refused(watch.changed()).await);
    }
    if is_child("tries again after a conflict") {
        exit(i32::from(second_attempt_succeeds(&AtomicU32::new(0)).await.is_err()));
    }
    if is_child("checks a guard until its lease has ended") {
        // Nobody renews the child's copy of the hold.
        while guard.check().is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        exit(0);
    }
    is_held(&guard).await;
    // Often: just then a thread of the parent may be in the middle of something.
    for _ in 0..8 {
        if is_child("drops a wait") {
            drop(waiting);
            exit(0);
        }
    }
    if is_child("shuts down") {
        dlock::shutdown(Duration::from_secs(60)).await;
        exit(0);
    }
    is_held(&guard).await;
    let body = lock("body").run(|held| async move {
        let is_child = is_child("returns from the body");
        if !is_child {
            answered(async || held.confirm().await).await.unwrap();
        }
        is_child
    });
    match body.await {
        Ok(is_child) => assert!(!is_child, "the child was told that the lock had covered its body"),
        // Only the child is refused.
        error => exit(refused(async { error }).await),
    }
    is_held(&guard).await;
    println!("held");
    waiting.await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    println!("released");
}

#[derive(Debug)]
struct Stale;

impl Conflict for Stale {
    fn is_conflict(&self) -> bool {
        true
    }
}

impl From<Error> for Stale {
    fn from(_: Error) -> Self {
        Self
    }
}

#[dlock::optimistic(retries = 2, backoff = "1ms..5ms")]
async fn second_attempt_succeeds(attempts: &AtomicU32) -> std::result::Result<(), Stale> {
    if attempts.fetch_add(1, Ordering::Relaxed) == 0 { Err(Stale) } else { Ok(()) }
}

/// Nothing that a child does ends the parent's hold.
async fn is_held(guard: &Guard) {
    answered(async || guard.confirm().await).await.unwrap();
}

/// The child's status: its error must say that the lock is its parent's.
async fn refused<T>(request: impl Future<Output = Result<T>>) -> i32 {
    let is_told =
        matches!(request.await.map(drop), Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }));
    i32::from(!is_told)
}

/// Forks. The parent goes on after the child has ended with success.
fn is_child(what: &str) -> bool {
    let child = match fork::fork().unwrap() {
        Fork::Child => return true,
        Fork::Parent(pid) => Pid::from_raw(pid).unwrap(),
    };
    let begin = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            assert_eq!(status.exit_status(), Some(0), "the child that {what}");
            return false;
        }
        if begin.elapsed() > CHILD {
            kill_process(child, Signal::KILL).unwrap();
            panic!("the child that {what} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
