//! Waiting: order, wake-ups, and attempts that must be refused.

use std::time::{Duration, Instant};

use dlock_contract::{Backend, Exchange, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{confirm, token};
use dlock_testkit::{lateness, wait_until};
use tokio::time::timeout;

use crate::server::{NEWS, TTL, acquire, ask, claim, claim_for, is_quiet, line, lock, process, raw, stand};

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_process() {
    let (one, other) = (process().await, process().await);
    let key = lock("wake");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    let mut signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    one.release(&hold).await.unwrap();
    let news = timeout(NEWS, signal).await.expect("no news").unwrap();
    // The news is the lock.
    let Signal::Granted(next) = news else { panic!("the only waiter has to ask") };
    assert!(matches!(confirm(&other, &next).await, Standing::Renewed(_)));
    assert!(token(&next) > token(&hold));
}

#[tokio::test]
async fn a_release_before_the_watch_began_is_not_missed() {
    let (one, other) = (process().await, process().await);
    let key = lock("missed");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    // The signal watches only when it is polled.
    let signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    one.release(&hold).await.unwrap();
    timeout(NEWS, signal).await.expect("no news").unwrap();
    assert!(stand(&other, &waiter).await.is_ok());
}

#[tokio::test]
async fn waiters_are_served_in_their_order() {
    let (one, two) = (process().await, process().await);
    let key = lock("order");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    let mut waiters = tokio::task::JoinSet::new();
    let (one, two) = (std::sync::Arc::new(one), std::sync::Arc::new(two));
    for turn in 0..3 {
        let (process, claim, order) = ([&one, &two][turn % 2].clone(), claim(&key), order.clone());
        waiters.spawn(async move {
            let hold = acquire(&process, &claim).await;
            order.send((turn, token(&hold))).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            process.release(&hold).await.unwrap();
        });
        wait_until("the waiter stands in line", async || line(&key).await.len() == turn + 2).await.unwrap();
    }
    one.release(&hold).await.unwrap();
    waiters.join_all().await;
    drop(order);
    let mut seen = vec![(usize::MAX, token(&hold))];
    while let Some(next) = served.recv().await {
        assert!(next.1 > seen[seen.len() - 1].1, "the token did not rise");
        seen.push(next);
    }
    assert_eq!(seen.iter().skip(1).map(|(turn, _)| *turn).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn a_waiter_that_goes_away_lets_nobody_in() {
    let (one, two, three) = (process().await, process().await, process().await);
    let key = lock("mere waiter");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let (second, third) = (claim(&key), claim(&key));
    assert!(stand(&two, &second).await.is_err());
    let mut signal = stand(&three, &third).await.unwrap_err().signal.unwrap();
    assert!(is_quiet(&mut signal).await);
    two.close().await;
    assert!(is_quiet(&mut signal).await, "in, although the first one still holds");
    assert!(stand(&three, &third).await.is_err());
    one.release(&hold).await.unwrap();
    assert!(matches!(signal.await.unwrap(), Signal::Granted(_)));
}

#[tokio::test]
async fn a_waiter_whose_key_is_gone_asks_and_goes_to_the_end_of_the_queue() {
    let (one, other) = (process().await, process().await);
    let key = lock("gone");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    let mut signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    let mine = line(&key).await.pop().unwrap();
    // It watches.
    assert!(is_quiet(&mut signal).await);
    raw().await.delete(mine.as_str(), None).await.unwrap();
    let news = timeout(NEWS, signal).await.expect("no news").unwrap();
    assert!(matches!(news, Signal::Ask));
    assert_eq!(line(&key).await.len(), 1);
    assert!(stand(&other, &waiter).await.is_err());
    assert_eq!(line(&key).await.len(), 2, "it stands in line again");
    one.release(&hold).await.unwrap();
    assert!(stand(&other, &waiter).await.is_ok());
}

#[tokio::test]
async fn an_attempt_without_a_place_ends_the_owners_place_in_the_queue() {
    let (one, other) = (process().await, process().await);
    let key = lock("leave");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    assert!(stand(&other, &waiter).await.is_err());
    assert!(ask(&other, &waiter).await.is_none());
    assert_eq!(line(&key).await.len(), 1);
    one.release(&hold).await.unwrap();
    assert!(ask(&other, &waiter).await.is_some());
}

#[tokio::test]
async fn a_dead_holder_is_followed_at_its_ttl_and_not_earlier() {
    let (one, other) = (process().await, process().await);
    let key = lock("dead");
    lateness::watch();
    let (ttl, began) = (Duration::from_secs(2), Instant::now());
    let hold = ask(&one, &claim_for(&key, ttl, true)).await.unwrap();
    // A longer ttl of its own, kept alive while it waits.
    let next = acquire(&other, &claim(&key)).await;
    let passed = dlock::Clock::system().now().since(hold.validity.from);
    assert!(passed >= ttl, "after {passed:?} only");
    lateness::assert_within(ttl + other.profile().takeover_delay, began, "the next grant");
    assert!(token(&next) > token(&hold));
    assert!(hold.validity.deadline() < next.validity.deadline());
}

#[tokio::test]
async fn a_waiter_keeps_its_place_for_longer_than_its_ttl() {
    let (one, other) = (process().await, process().await);
    let key = lock("keeps");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let ttl = Duration::from_secs(6);
    let waiter = claim_for(&key, ttl, true);
    let releasing = async {
        // The passing of this time is what is tested.
        tokio::time::sleep(ttl + Duration::from_secs(1)).await;
        assert_eq!(line(&key).await.len(), 2);
        one.release(&hold).await.unwrap();
    };
    let place = async {
        wait_until("the waiter has its place", async || line(&key).await.len() == 2).await.unwrap();
        line(&key).await.pop().unwrap()
    };
    let (next, (), early) = tokio::join!(acquire(&other, &waiter), releasing, place);
    assert_eq!(line(&key).await, [early], "the place was lost and taken anew");
    assert!(next.validity.deadline() > dlock::Clock::system().now());
}

/// A watch that begins in the past is served every 100 ms only; on a busy store "the revision just read" is past.
#[tokio::test]
async fn hand_overs_are_quick_on_a_busy_store() {
    let mut seen = Vec::new();
    // A busy machine may be late by chance, but not each time.
    for _ in 0..5 {
        let waits = times_of_hand_overs().await;
        if waits[waits.len() / 2] < Duration::from_millis(20) {
            return;
        }
        seen.push(waits);
    }
    panic!("{seen:?}: if the machine was busy all the time, nothing is proven");
}

async fn times_of_hand_overs() -> Vec<Duration> {
    let (one, other) = (process().await, process().await);
    let key = lock("busy");
    let mut raw = raw().await;
    let mut waits = Vec::new();
    for _ in 0..15 {
        let hold = ask(&one, &claim(&key)).await.unwrap();
        let waiter = claim(&key);
        let signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
        raw.put("noise", "", None).await.unwrap();
        let freeing = async {
            tokio::time::sleep(Duration::from_millis(5 + fastrand::u64(..20))).await;
            one.release(&hold).await.unwrap();
            Instant::now()
        };
        let woken = async {
            signal.await.unwrap();
            Instant::now()
        };
        let (woken, freed) = tokio::join!(woken, freeing);
        waits.push(woken.saturating_duration_since(freed));
        other.abandon(&waiter).await.unwrap();
    }
    waits.sort();
    waits
}

#[tokio::test]
async fn a_wake_that_is_dropped_frees_only_what_is_local() {
    let (one, other) = (process().await, process().await);
    let key = lock("dropped");
    let _hold = ask(&one, &claim(&key)).await.unwrap();
    let waiter = claim(&key);
    let wake = match other.try_acquire(&waiter, Queue::until(crate::server::soon())).await.unwrap() {
        dlock_contract::Attempt::Contended(wake) => wake,
        dlock_contract::Attempt::AlreadyRun => panic!("a claim without a period"),
        dlock_contract::Attempt::Acquired(_) => panic!("taken twice"),
    };
    let by = wake.ask_by.unwrap();
    assert!(by <= dlock::Clock::system().now().after(TTL / 3));
    drop(wake);
    assert_eq!(line(&key).await.len(), 2);
    other.abandon(&waiter).await.unwrap();
    assert_eq!(line(&key).await.len(), 1);
}

#[tokio::test]
async fn a_release_that_asks_for_the_next_caller_overtakes_nobody() {
    let (one, other) = (process().await, process().await);
    let key = lock("exchange");
    let hold = ask(&one, &claim(&key)).await.unwrap();
    let next = claim(&key);
    let until = crate::server::soon();
    let (released, answer) = one.release_to(&hold, &next, until).await.unwrap();
    let Some(dlock_contract::Attempt::Acquired(second)) = answer else { panic!("nobody else is there") };
    assert_eq!(released, Released::Released);
    assert!(token(&second) > token(&hold) && line(&key).await.len() == 1);

    let waiter = claim(&key);
    let signal = stand(&other, &waiter).await.unwrap_err().signal.unwrap();
    let third = claim(&key);
    let (released, answer) = one.release_to(&second, &third, until).await.unwrap();
    assert_eq!(released, Released::Released);
    assert!(matches!(answer, Some(dlock_contract::Attempt::Contended(_))), "it has overtaken a waiter");
    let Signal::Granted(theirs) = signal.await.unwrap() else { panic!("the waiter has to ask") };
    other.release(&theirs).await.unwrap();
    assert!(stand(&one, &third).await.is_ok());
    one.abandon(&third).await.unwrap();
    // For a claim that needs a lease of its own, it is a release alone.
    let last = ask(&one, &claim(&key)).await.unwrap();
    let (released, answer) = one.release_to(&last, &claim_for(&key, TTL, false), until).await.unwrap();
    assert!(released == Released::Released && answer.is_none() && line(&key).await.is_empty());
}
