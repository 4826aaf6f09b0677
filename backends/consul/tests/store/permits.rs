//! Permits: the protocol of Consul's own semaphore, from both sides.

use std::sync::Arc;

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Mode, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, take, token, until};
use dlock_testkit::wait_until;
use serde_json::{Value, json};

use crate::server::{LONG, Raw, SECOND, SEMAPHORE, fresh, name, process, renewal};

fn permits(text: &str, limit: u32) -> Arc<Claim> {
    claim_on(&LockKey::new("shop", Key::text("pool/").value(&text)).unwrap(), LONG, |claim| {
        claim.mode = Mode::permits(limit);
    })
}

/// The count, and the index that a change of it has to name.
fn count(raw: Raw, prefix: &str) -> (Value, u64) {
    let entry = raw.entry(&format!("{prefix}/.lock"));
    let answer = raw.ask(&format!("GET /v1/kv/{prefix}/.lock?raw")).unwrap();
    assert_eq!(entry["Flags"], SEMAPHORE);
    (serde_json::from_str(&answer).unwrap(), entry["ModifyIndex"].as_u64().unwrap())
}

#[tokio::test]
async fn the_keys_are_those_of_consuls_semaphore() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("keys"));
    let prefix = format!("pool/{id}");
    let (first, second) = (take(&store, &permits(&id, 2)).await, take(&store, &permits(&id, 2)).await);
    assert!(token(&second) > token(&first) && (first.slot, second.slot) == (Some(0), Some(1)));
    let (told, _) = count(raw, &prefix);
    let sessions: Vec<_> = told["Holders"].as_object().unwrap().keys().cloned().collect();
    assert_eq!((told["Limit"].as_u64(), sessions.len()), (Some(2), 2));
    for session in &sessions {
        let contender = raw.entry(&format!("{prefix}/{session}"));
        assert_eq!((contender["Session"].as_str(), &contender["Flags"]), (Some(session.as_str()), &SEMAPHORE.into()));
        assert_eq!(raw.session(session)["Behavior"], "delete");
    }
    store.release(&first).await.unwrap();
    store.release(&second).await.unwrap();
    assert!(raw.entry(&format!("{prefix}/.lock")).is_null(), "the count keeps out other numbers of permits");
}

#[tokio::test]
async fn a_permit_of_another_tool_counts_and_goes_with_its_session() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("theirs"));
    let prefix = format!("pool/{id}");
    // As another tool takes a permit: its key, then the count.
    let theirs = raw.new_session("delete");
    assert!(raw.acquire(&format!("{prefix}/{theirs}"), &theirs, SEMAPHORE));
    let body = json!({"Limit": 2, "Holders": {&theirs: true}});
    assert_eq!(raw.ask(&format!("PUT /v1/kv/{prefix}/.lock?cas=0&flags={SEMAPHORE} {body}")).unwrap().trim(), "true");
    let ours = take(&store, &permits(&id, 2)).await;
    assert_eq!(count(raw, &prefix).0["Holders"].as_object().unwrap().len(), 2);
    let waiter = permits(&id, 2);
    let Attempt::Contended(mut wake) = store.try_acquire(&waiter, until()).await.unwrap() else { panic!("three") };
    assert_eq!(wake.held_by.as_ref(), Some(&ours.claim.note), "the one that has a note");
    let error = store.try_acquire(&permits(&id, 3), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict);
    let news = tokio::spawn(wake.signal.take().unwrap());
    raw.destroy(&theirs);
    tokio::time::timeout(SECOND * 8, news).await.expect("the waiter was not woken").unwrap().unwrap();
    let next = take(&store, &waiter).await;
    let (told, _) = count(raw, &prefix);
    assert!(told["Holders"].get(&theirs).is_none() && told["Holders"].as_object().unwrap().len() == 2, "{told}");
    for hold in [ours, next] {
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn many_callers_never_have_more_permits_than_there_are() {
    let id = fresh("many");
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (store, id, inside) = (process("").await, id.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..4 {
                let hold = dlock_testkit::holds::wait(&store, &permits(&id, 2), LONG).await;
                let present = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert!(present < 2 && hold.slot.unwrap() < 2, "{} callers have one of two permits", present + 1);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                store.release(&hold).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let own = name(&permits(&id, 2));
    assert!(Raw::shared().entry(&format!("{own}/.lock")).is_null(), "an unused count of ours goes");
}

#[tokio::test]
async fn an_exclusive_claim_comes_in_after_permits_whose_holders_died() {
    let (store, raw, id) = (process("lock_delay=0s").await, Raw::shared(), fresh("dead"));
    let permit = permits(&id, 2);
    let hold = take(&store, &permit).await;
    let lock = claim_on(&permit.key, LONG, |_| ());
    let error = store.try_acquire(&lock, Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict);
    let prefix = permit.key.as_str().replace('/', "%2F");
    let told: Value = serde_json::from_str(
        &raw.ask(&format!(
            "GET /v1/kv/{}?raw",
            format!("{prefix}/.lock").bytes().map(|b| format!("%{b:02X}")).collect::<String>()
        ))
        .unwrap(),
    )
    .unwrap();
    let session = told["Holders"].as_object().unwrap().keys().next().unwrap().clone();
    raw.destroy(&session);
    wait_until("the dead session to free its key", async || raw.entry(&format!("{prefix}/{session}")).is_null())
        .await
        .unwrap();
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    let taken = take(&store, &lock).await;
    assert!(token(&taken) > token(&hold));
    assert!(raw.entry(&format!("{prefix}/.lock")).is_null());
    store.release(&taken).await.unwrap();
}

#[tokio::test]
async fn an_empty_semaphore_of_another_tool_keeps_its_limit() {
    let (store, raw, id) = (process("keys=literal").await, Raw::shared(), fresh("limit"));
    let prefix = format!("pool/{id}");
    let body = json!({"Limit": 3, "Holders": {}});
    assert_eq!(raw.ask(&format!("PUT /v1/kv/{prefix}/.lock?cas=0&flags={SEMAPHORE} {body}")).unwrap().trim(), "true");
    let error = store.try_acquire(&permits(&id, 2), Queue::Leave).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::KeyConflict && error.key() == Some(prefix.as_str()), "{error}");
    assert_eq!(count(raw, &prefix).0, body);
    take(&store, &permits(&id, 3)).await;
}
