//! The real Curator and the real kazoo, on the same paths.

use dlock::{ErrorKind, Key, Mode, Registry, Wait};
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::Peer;
use dlock_testkit::holds::{claim_on, stand, take};

use crate::kit::{TTL, claim, granted, line, opened, raw, shared};
use crate::peer::{curator, kazoo, place};

#[tokio::test]
async fn curators_lock_and_ours_exclude_each_other_and_stand_in_one_line() {
    one_line("curator", curator).await;
}

#[tokio::test]
async fn kazoos_lock_and_ours_exclude_each_other_and_stand_in_one_line() {
    one_line("kazoo", |path| kazoo(path, "")).await;
    one_line("curator", |path| kazoo(path, "-lock-")).await;
}

#[tokio::test]
async fn curators_readers_and_writers_and_ours_share_one_line() {
    readers_and_writers("curator", curator).await;
}

#[tokio::test]
async fn kazoos_readers_and_writers_and_ours_share_one_line() {
    readers_and_writers("kazoo", |path| kazoo(path, "")).await;
}

async fn one_line(layout: &str, peer: impl Fn(&str) -> Peer) {
    let raw = raw(&shared()).await;
    let store = opened(&format!("{}?keys=literal&layout={layout}", shared())).await;
    let (path, key) = place();
    let mut theirs = peer(&path);
    assert!(theirs.does("lock 0"));
    assert!(matches!(store.try_acquire(&claim(&key), Queue::Leave).await.unwrap(), Attempt::Contended(_)));
    let waiter = claim(&key);
    let mut wake = stand(&store, &waiter).await;
    assert!(theirs.does("free"));
    let hold = granted(&store, &waiter, &mut wake).await;
    assert!(!theirs.does("lock 0"), "{layout}: the other tool took a lock that is ours");
    theirs.begin("lock 30");
    while line(&raw, &path).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    store.release(&hold).await.unwrap();
    assert!(theirs.end() && theirs.does("free"));
    assert!(line(&raw, &path).await.is_empty());
}

async fn readers_and_writers(layout: &str, peer: impl Fn(&str) -> Peer) {
    let store = opened(&format!("{}?keys=literal&layout={layout}", shared())).await;
    let (path, key) = place();
    let of = |mode| claim_on(&key, TTL * 10, |claim| claim.mode = mode);
    let mut theirs = peer(&path);
    let ours = take(&store, &of(Mode::Read)).await;
    assert!(theirs.does("read 0"), "two readers");
    assert!(theirs.does("free") && !theirs.does("write 0"), "a writer beside a reader");
    store.release(&ours).await.unwrap();
    let ours = take(&store, &of(Mode::Write)).await;
    assert!(!theirs.does("read 0") && !theirs.does("write 0"), "beside our writer");
    store.release(&ours).await.unwrap();
    assert!(theirs.does("write 0"));
    for mode in [Mode::Read, Mode::Write] {
        let refused = store.try_acquire(&of(mode), Queue::Leave).await.unwrap();
        assert!(matches!(refused, Attempt::Contended(_)), "{mode:?} beside the other tool's writer");
    }
    assert!(theirs.does("free") && theirs.does("read 0"));
    let beside = take(&store, &of(Mode::Read)).await;
    store.release(&beside).await.unwrap();
    assert!(theirs.does("free"));
}

/// An operator looks for the name that an error shows in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_shows_the_path_that_foreign_clients_see() {
    let registry = Registry::new();
    registry.connect("zookeeper", &format!("{}?keys=literal", shared())).await.unwrap();
    registry.set_default("zookeeper").unwrap();
    let id = fastrand::u64(..);
    let (path, key) = (format!("/named/{id}"), || Key::text("named/").value(&id));
    let read = registry.lock(key()).mode(Mode::Read).acquire().await.unwrap();
    let writer = registry.lock(key()).mode(Mode::Write).wait(Wait::None).acquire().await.unwrap_err();
    assert!(writer.is_contention(), "{writer}");
    assert_eq!(writer.key(), Some(path.as_str()));
    let other_mode = registry.lock(key()).wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*other_mode.kind(), ErrorKind::KeyConflict, "{other_mode}");
    assert_eq!(other_mode.key(), Some(path.as_str()));
    read.release().await.unwrap();
}
