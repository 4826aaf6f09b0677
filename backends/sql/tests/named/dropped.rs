//! Requests whose answers nobody waits for: they are dropped, or their callers are not polled.

use std::time::Duration;

use dlock::Clock;
use dlock_contract::{Attempt, Backend, BreakRecord, HoldId, Inspect, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{Mode, Proxy, drop_after, wait_until};
use futures::future::join_all;

use super::support::{take_soon, until};
use crate::named_kit::{Database, TTL, open, open_at, session_of};

named_cases! {
    a_dropped_attempt_holds_nothing
    a_dropped_renewal_does_not_lose_the_lock
    a_caller_that_is_not_polled_keeps_no_other_from_a_new_session
    callers_that_are_not_polled_do_not_stop_the_monitor
}

async fn a_dropped_attempt_holds_nothing(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let (mut dropped, mut granted, mut slowest) = (0, 0, Duration::ZERO);
    // On a fast machine few attempts are dropped, and on a slow one few end.
    for round in 0.. {
        if round >= 200 && dropped > 10 && granted > 10 {
            break;
        }
        assert!(round < 5000, "{dropped} dropped, {granted} granted: nothing is proven");
        let claim = database.claim("a", TTL);
        // Slow and busy machines differ by much: half of the attempts get time to end.
        let pause = Duration::from_micros(fastrand::u64(0..2000)) * (1 + round % 4);
        let queue = if round % 2 == 0 { Queue::Leave } else { until(TTL) };
        match drop_after(fastrand::usize(0..20), pause, one.try_acquire(&claim, queue)).await {
            Some(_) => granted += 1,
            None => dropped += 1,
        }
        one.abandon(&claim).await.unwrap();
        let (hold, after) = take_soon(&other, &database.claim("a", TTL)).await;
        slowest = slowest.max(after);
        other.release(&hold).await.unwrap();
    }
    assert_eq!(session_of(&database, "a").await, None);
    eprintln!("{dropped} dropped, {granted} done; the next one had the lock after {slowest:?} at the latest");
}

async fn a_dropped_renewal_does_not_lose_the_lock(database: Database) {
    let one = open(&database).await;
    let hold = take(&one, &database.claim("a", TTL)).await;
    let (mut dropped, mut rounds) = (0, 0);
    // On a busy machine the server often answers within the first poll.
    while dropped < 20 {
        rounds += 1;
        assert!(rounds < 5000, "nothing is proven");
        let pause = Duration::from_micros(fastrand::u64(0..200));
        dropped += u32::from(drop_after(1, pause, one.renew(&[&hold])).await.is_none());
        let before = Clock::system().now();
        let Standing::Renewed(first) = confirm(&one, &hold).await else { panic!("lost") };
        let Standing::Renewed(second) = confirm(&one, &hold).await else { panic!("lost") };
        assert!(second.from >= before && first.from < second.from, "an old answer must keep its old instant");
    }
    drop_after(1, Duration::ZERO, one.renew(&[&hold])).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
}

async fn a_caller_that_is_not_polled_keeps_no_other_from_a_new_session(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open_at(&url).await;
    // The store knows the way of the namespace from here on.
    let first = take(&store, &database.claim("a", TTL)).await;
    store.release(&first).await.unwrap();
    // No session has this ttl.
    let [stopped, other] = ["b", "c"].map(|text| database.claim(text, TTL / 3));
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(500) });
    let before = proxy.connections();
    let mut asking = store.try_acquire(&stopped, Queue::Leave);
    let connects = wait_until("it connects", async || proxy.connections() > before);
    tokio::select! {
        answer = &mut asking => panic!("no reply has come: {answer:?}"),
        connects = connects => connects.unwrap(),
    }
    proxy.set(Mode::Pass);
    let answer = store.try_acquire(&other, Queue::Leave).await;
    assert!(matches!(answer, Ok(Attempt::Acquired(_))), "{answer:?}");
    drop(asking);
}

async fn callers_that_are_not_polled_do_not_stop_the_monitor(database: Database) {
    let near = open(&database).await;
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let store = open_at(&url).await;
    let mut holds = Vec::new();
    for number in 0..8 {
        holds.push(take(&store, &database.claim(&number.to_string(), TTL)).await);
    }
    let asked: Vec<_> = holds.iter().map(|hold| [hold]).collect();
    // Their session is slow to answer, so they ask the monitor.
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_secs(1) });
    let mut renewals: Vec<_> = asked.iter().map(|hold| store.renew(hold)).collect();
    let _ = tokio::time::timeout(Duration::from_millis(700), join_all(&mut renewals)).await;
    proxy.set(Mode::Pass);
    // The monitor alone finds that an operator breaks a hold.
    let claim = &holds[0].claim;
    let broken = near.break_hold(&claim.key, HoldId::of(&claim.owner), &BreakRecord::new("alice", 17, "test")).await;
    assert!(matches!(broken, Ok(true)), "{broken:?}");
    drop(renewals);
}
