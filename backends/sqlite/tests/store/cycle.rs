//! One lock from its grant to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use dlock::Clock;
use dlock::backends::sqlite::Sqlite;
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{assert_all_different, claim, confirm, take, token};

use crate::store::{Store, TTL, is_held, url};

#[tokio::test]
async fn a_lock_is_taken_renewed_and_freed() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let claim = claim("a", TTL);
    let before = store.clock.now();
    let hold = take(&one, &claim).await;
    assert!(hold.validity.from >= before && hold.validity.from <= store.clock.now());
    assert_eq!(hold.validity.granted, TTL);
    assert_eq!(one.look(&claim.key).await.unwrap().note().cloned().unwrap(), claim.note);
    let Standing::Renewed(validity) = confirm(&one, &hold).await else { panic!("lost") };
    assert!(validity.from > hold.validity.from);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(one.look(&claim.key).await.unwrap().note().cloned(), None);
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0, "a free lock has no row");
}

#[tokio::test]
async fn a_second_backend_is_refused_until_the_release() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let before = store.clock.now();
    let hold = take(&one, &claim("a", TTL)).await;
    let second = claim("a", TTL);
    let Attempt::Contended(wake) = other.try_acquire(&second, Queue::Leave).await.unwrap() else {
        panic!("two holders")
    };
    assert!(wake.signal.is_none());
    let left = wake.lease_left.unwrap();
    // The file counts milliseconds.
    let passed = store.clock.now().since(before) + Duration::from_millis(2);
    assert!(left <= TTL && left + passed >= TTL, "{left:?} after {passed:?}");
    one.release(&hold).await.unwrap();
    assert!(token(&take(&other, &second).await) > token(&hold));
}

#[tokio::test]
async fn an_owner_that_asks_again_gets_a_new_lease_and_keeps_its_token() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let claim = claim("a", TTL);
    let first = take(&one, &claim).await;
    store.clock.advance(TTL / 2);
    let again = take(&one, &claim).await;
    assert_eq!(token(&again), token(&first));
    assert_eq!(again.validity.from, store.clock.now());
    store.clock.advance(TTL - Duration::from_millis(1));
    assert!(is_held(&store.open().await, "a").await, "the second request did not prolong the lease");
}

#[tokio::test]
async fn a_lease_ends_at_its_ttl_and_not_earlier() {
    let store = Store::with_clock(Clock::manual());
    let (one, other) = (store.open().await, store.open().await);
    let claim = claim("a", TTL);
    let hold = take(&one, &claim).await;
    store.clock.advance(TTL - Duration::from_nanos(1));
    assert!(is_held(&other, "a").await);
    store.clock.advance(Duration::from_nanos(1));
    assert_eq!(other.look(&claim.key).await.unwrap().note().cloned(), None);
    let next = take(&other, &self::claim("a", TTL)).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(is_held(&one, "a").await, "the late release freed somebody else's lock");
}

#[tokio::test]
async fn after_its_expiry_a_lock_is_lost_though_nobody_took_it() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    store.clock.advance(TTL);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
}

#[tokio::test]
async fn a_renewal_never_creates() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    one.release(&hold).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
}

#[tokio::test]
async fn many_holds_are_renewed_at_once_each_by_its_own_ttl() {
    let store = Store::with_clock(Clock::manual());
    let one = store.open().await;
    let mut holds = Vec::new();
    for (text, seconds) in [("q\"uote", 10), ("back\\slash", 20), ("gone", 30), ("plain", 40)] {
        holds.push(take(&one, &claim(text, Duration::from_secs(seconds))).await);
    }
    one.release(&holds[2]).await.unwrap();
    store.clock.advance(Duration::from_secs(9));
    let standings = one.renew(&holds.iter().collect::<Vec<_>>()).await;
    let lost: Vec<bool> = standings.iter().map(|standing| *standing.as_ref().unwrap() == Standing::Lost).collect();
    assert_eq!(lost, [false, false, true, false]);
    store.clock.advance(Duration::from_secs(10));
    assert!(!is_held(&one, "q\"uote").await);
    assert!(is_held(&one, "back\\slash").await);
    assert!(one.renew(&[]).await.is_empty());
}

#[tokio::test]
async fn a_lock_from_before_a_restart_of_the_host_is_free() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let mut conn = store.connect().await;
    sqlx::query("UPDATE dlock_locks SET boot = 'another'").execute(&mut conn).await.unwrap();
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert!(!is_held(&one, "a").await);
}

#[tokio::test]
async fn abandon_frees_and_leaves_no_row_twice() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let claim = claim("a", TTL);
    drop(take(&one, &claim).await);
    one.abandon(&claim).await.unwrap();
    one.abandon(&claim).await.unwrap();
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 0);
    let other = take(&one, &self::claim("a", TTL)).await;
    one.abandon(&claim).await.unwrap();
    assert!(matches!(confirm(&one, &other).await, Standing::Renewed(_)), "it freed somebody else's lock");
}

#[tokio::test]
async fn keys_are_compared_byte_for_byte() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let long = "x".repeat(3000);
    for text in ["a", "A", "a ", "é", "e\u{301}", "%", "'; DROP TABLE dlock_locks; --", &long, &format!("{long}y")] {
        take(&one, &claim(text, TTL)).await;
    }
    assert_eq!(store.ask("SELECT count(*) FROM dlock_locks").await, 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_backends_never_hold_at_once() {
    let store = Store::on_real_time();
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (one, inside) = (store.open().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let (mut wins, mut tokens) = (0, Vec::new());
            while wins < 25 {
                let claim = claim("a", TTL);
                match one.try_acquire(&claim, Queue::Leave).await.unwrap() {
                    Attempt::Acquired(hold) => {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        tokens.push(token(&hold));
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        one.release(&hold).await.unwrap();
                        wins += 1;
                    }
                    Attempt::Contended(_) => tokio::time::sleep(Duration::from_micros(500)).await,
                    Attempt::AlreadyRun => panic!("a claim without a period"),
                }
            }
            tokens
        }));
    }
    assert_all_different(tasks, 100).await;
}

#[tokio::test]
async fn a_crowd_of_callers_does_not_hold_up_a_renewal() {
    let store = Store::on_real_time();
    let one = Arc::new(store.open().await);
    for round in 0..5 {
        if renewal_in_a_crowd(&one, round).await < 1000 {
            return;
        }
    }
    panic!(
        "each renewal came after more than half of 2000 callers: if the machine was busy all the time, nothing is proven"
    );
}

/// Behind how many of 2000 callers a renewal is answered.
async fn renewal_in_a_crowd(one: &Arc<Sqlite>, round: u32) -> usize {
    let hold = take(&**one, &claim(&format!("renewed {round}"), TTL)).await;
    let answered = Arc::new(AtomicUsize::new(0));
    let crowd: Vec<_> = (0..2000)
        .map(|number| {
            let (one, claim) = (one.clone(), claim(&format!("crowd {round} {number}"), TTL));
            let answered = answered.clone();
            tokio::spawn(async move {
                one.try_acquire(&claim, Queue::Leave).await.map(drop).unwrap();
                answered.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    tokio::task::yield_now().await;
    // Behind all of them, and in a task as they are: tasks go on in the order in which they were answered.
    let renewal = tokio::spawn({
        let (one, answered) = (one.clone(), answered.clone());
        async move {
            confirm(&*one, &hold).await;
            answered.load(Ordering::SeqCst)
        }
    });
    for caller in crowd {
        caller.await.unwrap();
    }
    renewal.await.unwrap()
}

#[tokio::test]
async fn a_wrong_wall_clock_changes_nothing() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let hold = take(&one, &claim("a", TTL)).await;
    let ahead = Sqlite::open(&url(&store.path()), &Clock::with_wall_skew(3_600_000)).await.unwrap();
    assert!(is_held(&ahead, "a").await);
    assert!(matches!(confirm(&ahead, &hold).await, Standing::Renewed(_)));
}
