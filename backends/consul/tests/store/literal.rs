//! `keys=literal`: the names, flags and requests of Consul's own tools.

use dlock::{Clock, ErrorKind, Key, LockKey, Registry};
use dlock_contract::{Attempt, Backend, Claim, Listing, Note, Queue, Released};
use dlock_testkit::holds::{self, claim_on, take, token, until};
use dlock_testkit::servers::shared;
use dlock_testkit::{Mode, Proxy};
use std::sync::Arc;
use std::time::Duration;

use crate::server::{LOCK, LONG, Raw, SECOND, fresh, name, open, own, process};

/// A claim whose literal name is `text`.
fn literal(text: &str) -> Arc<Claim> {
    claim_on(&LockKey::new("shop", Key::text("jobs/").value(&text)).unwrap(), LONG, |_| ())
}

#[tokio::test]
async fn a_lock_of_consuls_tools_keeps_ours_out_and_ours_theirs() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("both"));
    let (key, claim) = (format!("jobs/{id}"), literal(&id));
    let theirs = raw.new_session("release");
    assert!(raw.acquire(&key, &theirs, LOCK));
    let Attempt::Contended(wake) = store.try_acquire(&claim, until()).await.unwrap() else { panic!("two holders") };
    assert!(wake.held_by.unwrap().as_str() == Note::FOREIGN_CLIENT && wake.signal.is_some());
    let holders = store.look(&claim.key).await.unwrap().holders;
    assert!(holders.len() == 1 && holders[0].id.is_none(), "{holders:?}");
    assert!(raw.release(&key, &theirs, LOCK));
    let hold = holds::wait(&store, &claim, SECOND * 10).await;
    assert!(!raw.acquire(&key, &theirs, LOCK), "two holders");
    assert_eq!(raw.session(&raw.holder(&key).unwrap())["Behavior"], "release");
    let before = raw.entry(&key);
    assert_eq!((before["Flags"].as_u64(), before["LockIndex"].as_u64()), (Some(LOCK), Some(2)));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    // The key stays, as their tools leave it: they may count on its `LockIndex`.
    let after = raw.entry(&key);
    assert_eq!((&after["Flags"], &after["LockIndex"]), (&before["Flags"], &before["LockIndex"]));
    assert!(after["Session"].is_null());
    assert!(raw.acquire(&key, &theirs, LOCK));
    assert_eq!(raw.entry(&key)["LockIndex"], 3);
    raw.destroy(&theirs);
    let next = take(&store, &literal(&id)).await;
    assert!(token(&next) > token(&hold));
    store.release(&next).await.unwrap();
}

#[tokio::test]
async fn without_the_option_a_lock_has_a_name_of_ours() {
    let (store, raw, id) = (process("").await, Raw::shared(), fresh("default"));
    let claim = literal(&id);
    let hold = take(&store, &claim).await;
    assert!(raw.entry(&format!("jobs/{id}")).is_null());
    assert!(raw.holder(&name(&claim)).is_some());
    store.release(&hold).await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_a_conflict() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("data"));
    raw.ask(&format!("PUT /v1/kv/jobs/{id} data")).unwrap();
    let error = store.try_acquire(&literal(&id), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict, "{error}");
    assert_eq!(raw.entry(&format!("jobs/{id}"))["Value"], "ZGF0YQ==");
}

#[tokio::test]
async fn another_tools_lock_in_the_place_of_the_count_is_no_conflict() {
    // `consul lock NAME` takes the key `NAME/.lock`, which is the count of the semaphore NAME.
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("dot"));
    let theirs = raw.new_session("release");
    assert!(raw.acquire(&format!("jobs/{id}/.lock"), &theirs, LOCK));
    let hold = take(&store, &literal(&id)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let permits = claim_on(&literal(&id).key, LONG, |claim| claim.mode = dlock_contract::Mode::permits(2));
    let error = store.try_acquire(&permits, Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict, "{error}");
    raw.destroy(&theirs);
}

#[tokio::test]
async fn names_that_the_server_would_change_are_refused_before_any_request() {
    let store = process("keys=literal").await;
    for text in ["a//b", "a/../b", "/a"] {
        let key = LockKey::new("shop", Key::text(text)).unwrap();
        let error = store.try_acquire(&claim_on(&key, LONG, |_| ()), Queue::Leave).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_listing_has_the_held_locks_of_all_tools_and_no_other_keys() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("list"));
    let hold = take(&store, &literal(&format!("{id}-a"))).await;
    let freed = take(&store, &literal(&format!("{id}-b"))).await;
    store.release(&freed).await.unwrap();
    raw.ask(&format!("PUT /v1/kv/jobs/{id}-c data")).unwrap();
    let theirs = raw.new_session("release");
    assert!(raw.acquire(&format!("jobs/{id}-d"), &theirs, LOCK));
    let listing = Listing::of("shop").with(|listing| listing.prefix = format!("jobs/{id}"));
    let page = store.inspect().unwrap().list(&listing).await.unwrap();
    let names: Vec<_> = page.locks.iter().map(LockKey::as_str).collect();
    assert_eq!(names, [format!("jobs/{id}-a"), format!("jobs/{id}-d")]);
    store.release(&hold).await.unwrap();
    raw.destroy(&theirs);
}

/// A session takes as long as the look that has found the lock held. The engine would take the end of the wait for an outage.
#[tokio::test]
async fn a_waiter_makes_no_session_for_which_its_wait_leaves_no_time() {
    let server = own();
    let (proxy, url) = Proxy::in_front_of(&server.url()).unwrap();
    let (store, raw) = (open(&format!("{url}?keys=literal")).await.unwrap(), Raw::at(&server.url()));
    let id = fresh("short");
    let theirs = raw.new_session("release");
    assert!(raw.acquire(&format!("jobs/{id}"), &theirs, LOCK));
    let sessions = || raw.json("GET /v1/session/list").as_array().map(Vec::len);
    let before = sessions();
    let late = Duration::from_millis(100);
    proxy.set(Mode::Delay { to_server: late, to_client: late });
    let short = literal(&id);
    let until = Queue::until(Clock::system().now().after(late * 2));
    let Attempt::Contended(wake) = store.try_acquire(&short, until).await.unwrap() else { panic!("two holders") };
    assert!(wake.held_by.is_some() && wake.signal.is_some());
    assert_eq!(sessions(), before, "a session for a wait that is over");
    store.abandon(&short).await.unwrap();
    let long = literal(&id);
    let until = Queue::until(Clock::system().now().after(SECOND * 60));
    let Attempt::Contended(_wake) = store.try_acquire(&long, until).await.unwrap() else { panic!("two holders") };
    assert_eq!(sessions(), before.map(|count| count + 1));
    store.abandon(&long).await.unwrap();
}

/// An operator looks for the name that an error shows in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_shows_the_name_that_foreign_clients_see() {
    let (id, key) = (fresh("named"), |id: &str| Key::text("jobs/").value(id));
    let registry = Registry::new();
    registry.connect("consul", &format!("{}?keys=literal", shared().consul().unwrap())).await.unwrap();
    registry.set_default("consul").unwrap();
    let _held = registry.lock(key(&id)).acquire().await.unwrap();
    let busy = registry.lock(key(&id)).try_acquire().await.unwrap_err();
    assert_eq!(busy.key(), Some(format!("jobs/{id}").as_str()));
}
