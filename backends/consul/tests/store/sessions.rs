//! Sessions: one for each hold, what they are made of, and how their end is told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::{Duration, Instant};

use dlock::ErrorKind;
use dlock_contract::{Attempt, Backend, Durability, Expiry, Fencing, Queue, Released, Standing};
use dlock_testkit::holds::{self, claim, stand, take, token, until};
use dlock_testkit::servers::{self, Instance};
use dlock_testkit::wait_until;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::{ArcWake, noop_waker_ref, waker};

use crate::server::{LOCK, LONG, Raw, SECOND, fresh, name, open, own, process, renewal};

#[tokio::test]
async fn a_hold_has_a_session_of_its_own_which_ends_with_the_release() {
    let (store, raw) = (process("").await, Raw::shared());
    let claims = [claim(&fresh("one"), LONG), claim(&fresh("two"), LONG)];
    let holds = [take(&store, &claims[0]).await, take(&store, &claims[1]).await];
    let sessions = claims.each_ref().map(|claim| raw.holder(&name(claim)).unwrap());
    assert_ne!(sessions[0], sessions[1]);
    let told = raw.session(&sessions[0]);
    assert_eq!((told["TTL"].as_str(), told["Behavior"].as_str()), (Some("60000ms"), Some("delete")));
    assert_eq!(told["LockDelay"], 15_000_000_000_u64, "the lock-delay of Consul's own tools");
    assert!(told["NodeChecks"].as_array().unwrap().is_empty(), "a health check was asked for by nobody: {told}");
    assert_eq!(raw.entry(&name(&claims[0]))["Flags"], LOCK);
    assert_eq!(raw.entry(&name(&claims[0]))["ModifyIndex"], token(&holds[0]));
    for hold in &holds {
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
        assert_eq!(store.release(hold).await.unwrap(), Released::NotOwner);
    }
    for session in sessions {
        wait_until("the session to end", async || raw.session(&session).is_null()).await.unwrap();
    }
    assert!(raw.entry(&name(&claims[0])).is_null());
}

/// Makes one step of an attempt as soon as it is woken, on the thread that wakes it.
struct AttemptOnWake {
    attempt: Mutex<Option<BoxFuture<'static, dlock::Result<Attempt>>>>,
    has_begun: AtomicBool,
}

impl ArcWake for AttemptOnWake {
    fn wake_by_ref(this: &Arc<Self>) {
        if let Some(attempt) = &mut *this.attempt.lock().unwrap()
            && !this.has_begun.load(Ordering::Acquire)
        {
            assert!(attempt.poll_unpin(&mut Context::from_waker(noop_waker_ref())).is_pending());
            this.has_begun.store(true, Ordering::Release);
        }
    }
}

#[tokio::test]
async fn a_claim_that_asks_again_at_the_moment_of_its_release_leaves_nothing_after_its_abandon() {
    let (store, raw) = (Arc::new(process("lock_delay=0s").await), Raw::shared());
    let claim = claim(&fresh("again"), LONG);
    let hold = take(&*store, &claim).await;
    let (asked, of) = (store.clone(), claim.clone());
    let attempt = async move { asked.try_acquire(&of, Queue::Leave).await };
    let on_wake = Arc::new(AttemptOnWake { attempt: Mutex::new(Some(attempt.boxed())), has_begun: false.into() });
    let mut release = store.release(&hold);
    assert!(release.poll_unpin(&mut Context::from_waker(&waker(on_wake.clone()))).is_pending());
    wait_until("the attempt", async || on_wake.has_begun.load(Ordering::Acquire)).await.unwrap();
    assert_eq!(release.await.unwrap(), Released::Released);
    let attempt = on_wake.attempt.lock().unwrap().take().unwrap();
    assert!(matches!(attempt.await.unwrap(), Attempt::Acquired(_)));
    store.abandon(&claim).await.unwrap();
    assert!(raw.entry(&name(&claim)).is_null(), "the abandon knew nothing of the attempt");
}

#[tokio::test]
async fn closing_a_store_frees_its_locks_without_the_lock_delay() {
    let (store, other) = (process("").await, process("").await);
    let held = claim(&fresh("closed"), LONG);
    take(&store, &held).await;
    store.close().await;
    let next = take(&other, &holds::claim_on(&held.key, LONG, |_| ())).await;
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn a_session_has_the_lock_delay_and_the_checks_that_the_url_asks_for() {
    let (store, raw) = (process("lock_delay=3s&checks=serfHealth").await, Raw::shared());
    let claim = claim(&fresh("checked"), LONG);
    let hold = take(&store, &claim).await;
    let told = raw.session(&raw.holder(&name(&claim)).unwrap());
    assert_eq!(told["LockDelay"], 3_000_000_000_u64);
    assert_eq!(told["NodeChecks"][0], "serfHealth");
    assert_eq!(store.profile().takeover(SECOND), SECOND * 6);
    store.release(&hold).await.unwrap();
    let error = open("consul://127.0.0.1:1?lock_delay=61s").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "lock_delay"), "{error}");
}

#[tokio::test]
async fn the_servers_say_which_ttls_there_are() {
    // As a server is by default. The other tests have shorter sessions, and more connections from one host.
    let defaults = ["-hcl=session_ttl_min=\"10s\"", "-hcl=limits{http_max_conns_per_client=200}"].map(str::to_owned);
    let usual = Instance::start(servers::Consul { extra: defaults.into(), ..Default::default() }).unwrap();
    let profile = open(&usual.url()).await.unwrap().profile().clone();
    assert_eq!((profile.ttl.min, profile.ttl.max), (SECOND * 10, SECOND * 86_400));
    let profile = process("").await.profile().clone();
    assert_eq!((profile.ttl.min, profile.ttl.step), (SECOND, Duration::from_millis(1)));
    assert_eq!((profile.fencing, profile.durability), (Fencing::Monotonic, Durability::Consensus));
    assert!(profile.expiry == Expiry::Lease && profile.expires_alone && profile.permits && !profile.fair);
    assert_eq!(profile.takeover(SECOND * 10), SECOND * (20 + 15 + 1));
}

#[tokio::test]
async fn an_operator_who_destroys_the_session_is_told_at_once_and_the_lock_delay_is_kept() {
    let (store, other, raw) = (process("lock_delay=8s").await, process("lock_delay=8s").await, Raw::shared());
    let claim = claim(&fresh("destroyed"), LONG);
    let hold = take(&store, &claim).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    let before = Instant::now();
    raw.destroy(&raw.holder(&name(&claim)).unwrap());
    // Nobody renews here, so only the blocking query can tell.
    tokio::time::timeout(SECOND * 60, ended).await.expect("the holder was not told");
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
    let next = holds::claim_on(&claim.key, LONG, |_| ());
    // Whoever asks meanwhile is refused, and told when to ask again.
    let Attempt::Contended(wake) = other.try_acquire(&next, until()).await.unwrap() else { panic!("no lock-delay") };
    assert!(wake.signal.is_none() && wake.ask_by.is_some() && wake.held_by.is_none());
    let taken = holds::wait(&other, &next, SECOND * 30).await;
    assert!(before.elapsed() >= SECOND * 8, "the lock-delay was not kept: {:?}", before.elapsed());
    assert!(token(&taken) > token(&hold));
    other.release(&taken).await.unwrap();
}

#[tokio::test]
async fn a_health_check_that_becomes_critical_ends_the_hold_and_the_lock_delay_is_kept() {
    let (raw, check) = (Raw::shared(), fresh("check"));
    raw.ask(&format!(r#"PUT /v1/agent/check/register {{"Name":"{check}","TTL":"60s","Status":"passing"}}"#)).unwrap();
    wait_until("the check", async || raw.json("GET /v1/health/node/n1").to_string().contains(&check)).await.unwrap();
    let options = format!("lock_delay=30s&checks={check}");
    let (store, other) = (process(&options).await, process("lock_delay=30s").await);
    let claim = claim(&fresh("critical"), LONG);
    let hold = take(&store, &claim).await;
    let ended = hold.session.as_ref().unwrap().ended().unwrap();
    raw.ask(&format!("PUT /v1/agent/check/fail/{check}")).unwrap();
    tokio::time::timeout(SECOND * 60, ended).await.expect("the holder was not told");
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    let next = holds::claim_on(&claim.key, LONG, |_| ());
    let Attempt::Contended(wake) = other.try_acquire(&next, until()).await.unwrap() else { panic!("no lock-delay") };
    assert!(wake.ask_by.is_some() && wake.held_by.is_none());
    // No session can be made while its check is critical.
    assert!(store.try_acquire(&next, Queue::Leave).await.is_err());
    other.abandon(&next).await.unwrap();
    raw.ask(&format!("PUT /v1/agent/check/deregister/{check}")).unwrap();
}

#[tokio::test]
async fn the_ends_of_many_sessions_are_told_and_of_no_other() {
    let server = own();
    let (store, raw) = (open(&format!("{}?lock_delay=0s", server.url())).await.unwrap(), Raw::at(&server.url()));
    let mut held = Vec::new();
    for _ in 0..12 {
        let claim = claim(&fresh("many"), LONG);
        let hold = take(&store, &claim).await;
        let ended = tokio::spawn(hold.session.as_ref().unwrap().ended().unwrap());
        held.push((name(&claim), hold, ended));
    }
    let (gone, kept) = held.split_at_mut(6);
    for (name, ..) in &*gone {
        raw.destroy(&raw.holder(name).unwrap());
    }
    for (_, hold, ended) in gone {
        tokio::time::timeout(SECOND * 60, ended).await.expect("a holder was not told").unwrap();
        assert_eq!(renewal(&store, hold).await.unwrap(), Standing::Lost);
    }
    for (_, hold, ended) in kept {
        assert!(!ended.is_finished(), "a holder was told of another one's end");
        assert!(matches!(renewal(&store, hold).await.unwrap(), Standing::Renewed(_)));
        store.release(hold).await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_who_deletes_the_key_takes_the_lock() {
    let (store, other, raw) = (process("").await, process("").await, Raw::shared());
    let claim = claim(&fresh("deleted"), LONG);
    let hold = take(&store, &claim).await;
    raw.delete(&name(&claim));
    let next = take(&other, &holds::claim_on(&claim.key, LONG, |_| ())).await;
    assert!(token(&next) > token(&hold));
    // Its session lives.
    assert_eq!(renewal(&store, &hold).await.unwrap(), Standing::Lost);
    assert_eq!(store.release(&hold).await.unwrap(), Released::NotOwner);
    assert!(matches!(renewal(&other, &next).await.unwrap(), Standing::Renewed(_)));
    other.release(&next).await.unwrap();
}

#[tokio::test]
async fn a_waiter_hears_of_a_release_and_its_session_ends_when_it_gives_up() {
    let (store, other) = (process("").await, process("").await);
    let holder = claim(&fresh("awaited"), LONG);
    let hold = take(&store, &holder).await;
    let waiter = holds::claim_on(&holder.key, LONG, |_| ());
    let mut wake = stand(&other, &waiter).await;
    assert_eq!(wake.held_by.as_ref(), Some(&hold.claim.note));
    let news = tokio::spawn(wake.signal.take().unwrap());
    store.release(&hold).await.unwrap();
    // A blocking query that was not woken would end after 10 s and wait again.
    tokio::time::timeout(SECOND * 8, news).await.expect("the waiter was not woken").unwrap().unwrap();
    let next = take(&other, &waiter).await;
    other.abandon(&waiter).await.unwrap();
    assert_eq!(other.release(&next).await.unwrap(), Released::NotOwner);
    assert!(Raw::shared().entry(&name(&waiter)).is_null());
}

#[tokio::test]
async fn a_claim_that_asks_again_after_its_session_has_ended_gets_a_new_one() {
    let (store, raw) = (process("lock_delay=0s").await, Raw::shared());
    let claim = claim(&fresh("again"), LONG);
    let first = take(&store, &claim).await;
    let before = raw.holder(&name(&claim)).unwrap();
    raw.destroy(&before);
    let again = take(&store, &claim).await;
    assert!(raw.holder(&name(&claim)).unwrap() != before && token(&again) > token(&first));
    assert_eq!(store.release(&again).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_key_of_another_program_is_a_conflict_and_stays_as_it_is() {
    let (store, raw) = (process("").await, Raw::shared());
    let claim = claim(&fresh("stranger"), LONG);
    let path = name(&claim).bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    raw.ask(&format!("PUT /v1/kv/{path}?flags=7 hello")).unwrap();
    for queue in [Queue::Leave, until()] {
        let error = store.try_acquire(&claim, queue).await.unwrap_err();
        assert!(*error.kind() == ErrorKind::KeyConflict && !error.is_retryable(), "{error}");
        store.abandon(&claim).await.unwrap();
    }
    let entry = raw.entry(&name(&claim));
    assert_eq!((&entry["Flags"], entry["Value"].as_str()), (&7.into(), Some("aGVsbG8=")));
    assert!(entry["Session"].is_null());
}

#[tokio::test]
async fn closing_a_store_ends_the_sessions_of_waiters() {
    let (store, raw) = (process("lock_delay=2s").await, Raw::shared());
    let claim = claim(&fresh("closed"), LONG);
    let first = take(&store, &claim).await;
    drop(first);
    let session = raw.holder(&name(&claim)).unwrap();
    store.close().await;
    assert!(raw.session(&session).is_null());
}
