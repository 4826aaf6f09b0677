//! `fair` claims, which overtake no waiter.

use dlock::Mode;
use dlock_contract::{Backend, Keeps, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::wait_until;

use super::bench::{Bench, LONG, MS, SECOND, ask, contended, granted, stand, until, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_claim_does_not_overtake_after_a_death() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    take(&one, &bench.fair(LONG)).await;
    let waiter = bench.fair_unrenewed();
    let mut wake = stand(&two, &waiter).await;
    // It ran out.
    let _: u64 = redis::cmd("DEL").arg(bench.name()).query(&mut bench.raw()).unwrap();
    // The lock is free, and there is a waiter in its queue.
    let late = bench.fair_unrenewed();
    assert!(ask(&one, &late, Queue::Leave).await.is_none());
    let first = granted(&mut wake).await;
    let mut behind = stand(&one, &late).await;
    assert_eq!(two.release(&first).await.unwrap(), Released::Released);
    let second = granted(&mut behind).await;
    assert!(second.token > first.token);
    one.release(&second).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_claim_that_comes_first_gets_the_lock_at_once() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    for how in [Queue::Leave, until()] {
        let claim = bench.fair(LONG);
        let hold = ask(&redis, &claim, how).await.unwrap();
        let again = ask(&redis, &claim, how).await.unwrap();
        assert!(again.token > hold.token);
        contended(&redis, &bench.fair(SECOND)).await;
        contended(&redis, &bench.claim(Mode::Exclusive, SECOND)).await;
        assert_eq!(bench.keys(), ["l"]);
        assert_eq!(redis.release(&again).await.unwrap(), Released::Released);
        assert_eq!(bench.keys(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_dead_waiters_does_not_delay_a_fair_claim() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    take(&one, &bench.fair(5 * SECOND)).await;
    drop(stand(&two, &bench.fair(LONG)).await);
    drop(two);
    wait_until("nobody listens", async || bench.listeners() == 0).await.unwrap();
    wait_until("the lease ends", async || !bench.keys().contains(&"l".to_owned())).await.unwrap();
    assert!(ask(&one, &bench.fair(LONG), Queue::Leave).await.is_some());
}

/// A hold that ran out, as with `max_hold`, is no sign that its process is dead: not if it has asked since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_asked_since_it_was_handed_the_lock_keeps_its_other_places() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    for asks in [true, false] {
        let held = take(&one, &bench.fair(LONG)).await;
        let (first, second, last) = (bench.fair_unrenewed(), bench.fair_unrenewed(), bench.fair_unrenewed());
        let mut handed = stand(&two, &first).await;
        let mut next = stand(&two, &second).await;
        let behind = stand(&one, &last).await;
        assert_eq!(one.release(&held).await.unwrap(), Released::Released);
        granted(&mut handed).await;
        if asks {
            next = stand(&two, &second).await;
        }
        // It ran out.
        let _: u64 = redis::cmd("DEL").arg(bench.name()).query(&mut bench.raw()).unwrap();
        let asked = ask(&one, &last, until()).await;
        assert_eq!(asked.is_none(), asks, "who stands behind two others");
        let hold = match asked {
            None => granted(&mut next).await,
            Some(hold) => hold,
        };
        two.release(&hold).await.unwrap();
        drop((behind, next));
        for (redis, claim) in [(&one, &last), (&two, &second), (&two, &first)] {
            redis.abandon(claim).await.unwrap();
        }
        assert_eq!(bench.keys(), [""; 0]);
    }
}

/// It has renewed and ended, so it lives, though it has not asked since it was handed the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_hold_ended_with_a_kept_key_keeps_its_other_places() {
    let bench = Bench::shared();
    let (a, b, c) = (bench.open().await, bench.open().await, bench.open().await);
    let held = take(&c, &bench.fair(LONG)).await;
    let (second, last) = (bench.fair_unrenewed(), bench.fair_unrenewed());
    let mut handed = stand(&a, &bench.fair_unrenewed()).await;
    let _asks = stand(&b, &second).await;
    let mut third = stand(&a, &bench.fair_unrenewed()).await;
    assert_eq!(c.release(&held).await.unwrap(), Released::Released);
    let first = granted(&mut handed).await;
    assert!(matches!(confirm(&a, &first).await, Standing::Renewed(_)));
    assert_eq!(a.keep(&first, LONG, None).await.unwrap(), Released::Released);
    // The kept time is over.
    let _: u64 = redis::cmd("DEL").arg(bench.name()).query(&mut bench.raw()).unwrap();
    let next = ask(&b, &second, until()).await.unwrap();
    let mut fourth = stand(&c, &last).await;
    assert_eq!(b.release(&next).await.unwrap(), Released::Released);
    let next = granted(&mut third).await;
    assert_eq!(a.release(&next).await.unwrap(), Released::Released);
    let next = granted(&mut fourth).await;
    assert_eq!(c.release(&next).await.unwrap(), Released::Released);
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fair_waiters_are_served_in_the_order_in_which_they_came() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let mut hold = take(&one, &bench.fair(LONG)).await;
    let mut wakes = Vec::new();
    for n in 0..8 {
        wakes.push(stand(if n % 2 == 0 { &one } else { &two }, &bench.fair_unrenewed()).await);
    }
    for mut wake in wakes {
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        let next = granted(&mut wake).await;
        assert!(next.token > hold.token);
        hold = next;
    }
    one.release(&hold).await.unwrap();
    let _ = wait(&one, &bench.fair(10 * MS), LONG).await;
    bench.empty(100 * MS).await;
}
