//! `keys=literal` beside the crate rslock, as two programs in Rust would have them.

use std::time::Instant;

use dlock::{ErrorKind, Wait};
use rslock::{LockError, LockManager};

use super::bench::{Bench, LONG, MS};

fn manager(bench: &Bench) -> LockManager {
    let mut manager = LockManager::new(vec![&*bench.url]);
    // A lock that is taken is refused at the first try.
    manager.set_retry(1, 200 * MS);
    manager
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_rslock_is_busy_for_us_and_ours_after_its_unlock() {
    let bench = Bench::new();
    let registry = bench.registry("keys=literal").await;
    // Longer than anybody waits here: only its unlock lets us in.
    let theirs = manager(&bench).acquire(&*bench.name, 4 * LONG).await.unwrap();
    let before = bench.value();
    let lock = || registry.lock(bench.text()).ttl(LONG);
    let error = lock().try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy);
    let waiting = tokio::spawn(lock().wait(Wait::UpTo(2 * LONG)).acquire());
    let end = Instant::now() + LONG;
    while bench.keys().len() < 2 {
        assert!(Instant::now() < end, "nobody stands in our line");
        tokio::time::sleep(5 * MS).await;
    }
    assert_eq!(bench.value(), before);
    assert!(!waiting.is_finished());
    theirs.release().await;
    let guard = waiting.await.unwrap().unwrap();
    assert_ne!(bench.value(), before);
    guard.release().await.unwrap();
    bench.empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_finds_our_lock_taken_and_gets_it_after_our_release() {
    let bench = Bench::new();
    let (registry, manager) = (bench.registry("keys=literal").await, manager(&bench));
    let lock = || registry.lock(bench.text()).ttl(4 * LONG);
    let guard = lock().acquire().await.unwrap();
    let before = bench.value().unwrap();
    // A refused client unlocks what it may have left. It must not unlock our lock.
    assert!(matches!(manager.lock(&*bench.name, LONG).await, Err(LockError::Unavailable)));
    assert_eq!(bench.value(), Some(before));
    guard.check().unwrap();
    let (theirs, released) = (LockManager::new(vec![&*bench.url]), bench.name.clone());
    let waiting = tokio::spawn(async move { theirs.acquire(&*released, LONG).await });
    guard.release().await.unwrap();
    let theirs = tokio::time::timeout(2 * LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(*lock().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    assert!(!manager.is_freed(&theirs.lock).await.unwrap());
    theirs.release().await;
    let guard = lock().wait(Wait::UpTo(LONG)).acquire().await.unwrap();
    guard.release().await.unwrap();
    bench.empty().await;
}
