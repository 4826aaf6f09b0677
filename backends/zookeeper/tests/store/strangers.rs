//! Nodes as other tools make them, and locks under the names of other tools.

use dlock::backends::zookeeper::client::{Acls, CreateMode};
use dlock::{ErrorKind, Key, LockKey, Mode};
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::holds::{claim_on, stand, take, until};

use crate::kit::{TTL, claim, granted, line, opened, put, raw, shared};
use crate::peer::place;

/// Each layout with the nodes of its tool: an exclusive one, a reader, a writer.
const NODES: [(&str, [&str; 3]); 2] = [
    (
        "curator",
        [
            "_c_9866788c-b987-091f-8fed-485581bd39b6-lock-",
            "_c_9866788c-b987-091f-8fed-485581bd39b6-__READ__",
            "_c_9866788c-b987-091f-8fed-485581bd39b6-__WRIT__",
        ],
    ),
    (
        "kazoo",
        [
            "9866788cb987091f8fed485581bd39b6__lock__",
            "9866788cb987091f8fed485581bd39b6__rlock__",
            "9866788cb987091f8fed485581bd39b6__lock__",
        ],
    ),
];

/// A node of go-zookeeper: as Curator's, but without hyphens in the id.
const GO: &str = "_c_9866788cb987091f8fed485581bd39b6-lock-";

#[tokio::test]
async fn another_tools_lock_excludes_ours_and_ours_its() {
    let raw = raw(&shared()).await;
    let own = NODES.map(|(layout, [exclusive, ..])| (layout, exclusive));
    for (layout, exclusive) in own.into_iter().chain([("curator", GO), ("kazoo", GO)]) {
        let store = opened(&format!("{}?keys=literal&layout={layout}", shared())).await;
        let (place, key) = place();
        let theirs = put(&raw, &place, exclusive).await;
        let Attempt::Contended(wake) = store.try_acquire(&claim(&key), Queue::Leave).await.unwrap() else { panic!() };
        assert!(wake.held_by.unwrap().as_str().contains("foreign client"));
        let holders = store.look(&key).await.unwrap().holders;
        assert!(holders.len() == 1 && holders[0].id.is_none());
        let waiter = claim(&key);
        let mut standing = stand(&store, &waiter).await;
        // Theirs, behind ours.
        put(&raw, &place, exclusive).await;
        raw.delete(&theirs, None).await.unwrap();
        let hold = granted(&store, &waiter, &mut standing).await;
        let nodes = line(&raw, &place).await;
        let words = if layout == "curator" { "-lock-" } else { "__lock__" };
        assert!(nodes.len() == 2 && nodes[0].contains(words), "{nodes:?}");
        store.release(&hold).await.unwrap();
    }
}

#[tokio::test]
async fn another_tools_readers_and_writers_are_told_apart() {
    let raw = raw(&shared()).await;
    for (layout, [_, reader, writer]) in NODES {
        let store = opened(&format!("{}?keys=literal&layout={layout}", shared())).await;
        let (place, key) = place();
        let of = |mode| claim_on(&key, TTL, |claim| claim.mode = mode);
        let theirs = put(&raw, &place, reader).await;
        let ours = take(&store, &of(Mode::Read)).await;
        let waiting = of(Mode::Write);
        let mut writes = stand(&store, &waiting).await;
        store.release(&ours).await.unwrap();
        raw.delete(&theirs, None).await.unwrap();
        let hold = granted(&store, &waiting, &mut writes).await;
        store.release(&hold).await.unwrap();
        let theirs = put(&raw, &place, writer).await;
        let waiting = of(Mode::Read);
        let mut reads = stand(&store, &waiting).await;
        raw.delete(&theirs, None).await.unwrap();
        let hold = granted(&store, &waiting, &mut reads).await;
        store.release(&hold).await.unwrap();
        assert!(line(&raw, &place).await.is_empty());
    }
}

#[tokio::test]
async fn a_kazoo_lock_excludes_ours_in_curators_layout() {
    let raw = raw(&shared()).await;
    let store = opened(&format!("{}?keys=literal", shared())).await;
    let (place, key) = place();
    let theirs = put(&raw, &place, NODES[1].1[0]).await;
    assert!(matches!(store.try_acquire(&claim(&key), Queue::Leave).await.unwrap(), Attempt::Contended(_)));
    raw.delete(&theirs, None).await.unwrap();
    let hold = take(&store, &claim(&key)).await;
    store.release(&hold).await.unwrap();
}

#[tokio::test]
async fn other_children_are_no_contenders_and_helpers_of_ours_stand_elsewhere() {
    let raw = raw(&shared()).await;
    let store = opened(&format!("{}?keys=literal", shared())).await;
    let (place, key) = place();
    raw.mkdir(&format!("{place}/locks"), &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let hold = take(&store, &claim(&key)).await;
    assert_eq!(line(&raw, &place).await.len(), 2, "go-zookeeper cannot read a line with other children");
    store.release(&hold).await.unwrap();
}

#[tokio::test]
async fn by_default_names_are_our_own_and_a_literal_store_says_what_it_cannot() {
    let key = place().1;
    let plain = opened(&shared()).await;
    assert!(plain.identify(&key).unwrap().names()[0].starts_with("/dlock/t/"));
    assert!(plain.profile().any_key && plain.profile().permits);
    let literal = opened(&format!("{}?keys=literal", shared())).await;
    assert!(!literal.profile().any_key && !literal.profile().permits && literal.profile().read_write);
    let blank = LockKey::new("t", Key::text("a//b")).unwrap();
    let error = literal.try_acquire(&claim(&blank), until()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }));
}
