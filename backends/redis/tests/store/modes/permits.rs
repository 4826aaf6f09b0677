//! Permits, beyond the suite: pushed shares, batches of renewals, and the commands that a permit costs.

use std::sync::Arc;
use std::time::Instant;

use dlock_contract::{Attempt, Backend, Keeps, Queue, Released, Validity};
use dlock_testkit::holds::{confirm, take};
use dlock_testkit::{lateness, wait_until};
use redis::Commands;

use super::bench::{
    Bench, LONG, MS, SECOND, ask, contended, granted, is_lost, permits, silent, stand, took, until, wait,
};
use crate::names::FENCE;

#[tokio::test]
async fn an_owner_that_asks_again_keeps_its_permit_number_and_gets_a_new_lease() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let _low = take(&redis, &bench.claim(permits(3), LONG)).await;
    let claim = bench.claim(permits(3), 6 * SECOND);
    let first = take(&redis, &claim).await;
    for how in [Queue::Leave, until()] {
        // Twice this is longer than the lease.
        tokio::time::sleep(3100 * MS).await;
        let again = ask(&redis, &claim, how).await.unwrap();
        assert_eq!(again.slot, first.slot);
        assert!(again.token > first.token && again.validity.from > first.validity.from);
    }
    tokio::time::sleep(3100 * MS).await;
    assert!(!is_lost(&redis, &first).await);
}

#[tokio::test]
async fn each_permit_ends_by_itself() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let short = take(&redis, &bench.claim(permits(2), 5 * SECOND)).await;
    let long = take(&redis, &bench.claim(permits(2), LONG)).await;
    contended(&redis, &bench.claim(permits(2), LONG)).await;
    let next = wait(&redis, &bench.claim(permits(2), 100 * MS), LONG).await;
    assert_eq!((next.slot, long.slot), (short.slot, Some(1)));
    assert!(is_lost(&redis, &short).await && !is_lost(&redis, &long).await);
    assert_eq!(redis.release(&short).await.unwrap(), Released::NotOwner);
    // The name is taken for no longer than the last of them.
    assert_eq!(redis.release(&long).await.unwrap(), Released::Released);
    assert!(bench.left() <= 101, "{}", bench.left());
    bench.empty(150 * MS).await;
}

#[tokio::test]
async fn renewals_of_all_modes_go_in_one_batch() {
    let bench = Bench::own();
    let redis = bench.open().await;
    let mut holds = Vec::new();
    for _ in 0..20 {
        holds.push(take(&redis, &bench.claim(permits(100), LONG)).await);
    }
    let other = Bench::shared();
    let mut exclusive = dlock_contract::Claim::new(other.key.clone(), LONG, "t").unwrap();
    exclusive.mode = dlock::Mode::Exclusive;
    holds.push(take(&redis, &Arc::new(exclusive)).await);
    redis.release(&holds[7]).await.unwrap();
    for flush in [false, true] {
        if flush {
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut bench.raw()).unwrap();
        }
        let all: Vec<_> = holds.iter().collect();
        let standings = redis.renew(&all).await;
        for (n, standing) in standings.into_iter().enumerate() {
            match standing.unwrap() {
                dlock_contract::Standing::Lost => assert_eq!(n, 7),
                dlock_contract::Standing::Renewed(Validity { granted, .. }) => assert_eq!(granted, holds[n].claim.ttl),
            }
        }
    }
    assert!(bench.left() > 9000, "{}", bench.left());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_hands_its_permit_number_to_the_first_waiter() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let first = take(&one, &bench.claim(permits(2), LONG)).await;
    let second = take(&one, &bench.claim(permits(2), LONG)).await;
    let mut wakes = vec![stand(&two, &bench.claim(permits(2), LONG)).await];
    for redis in [&one, &two] {
        wakes.push(stand(redis, &bench.unrenewed(permits(2))).await);
    }
    contended(&one, &bench.claim(permits(2), LONG)).await;
    let pushed = Instant::now();
    one.release(&second).await.unwrap();
    let third = granted(&mut wakes[0]).await;
    assert_eq!((third.slot, third.validity.granted), (Some(1), SECOND));
    assert!(third.token > second.token);
    silent(&mut wakes[1]).await;
    // Short until it is renewed.
    let is_held = confirm(&two, &third).await != dlock_contract::Standing::Lost;
    assert!(is_held && bench.left() > 9000, "lost{}", lateness::verdict(pushed, 900 * MS));
    one.release(&first).await.unwrap();
    let fourth = granted(&mut wakes[1]).await;
    assert_eq!(fourth.slot, Some(0));
    silent(&mut wakes[2]).await;
    two.release(&third).await.unwrap();
    let fifth = granted(&mut wakes[2]).await;
    assert_eq!(fifth.slot, Some(1));
    one.release(&fourth).await.unwrap();
    two.release(&fifth).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_several_permits_end_at_once_as_many_waiters_get_in() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    for _ in 0..10 {
        for _ in 0..3 {
            // Shorter than the places of waiters last.
            take(&redis, &bench.claim(permits(3), 2 * SECOND)).await;
        }
        let claims: Vec<_> = (0..4).map(|_| bench.unrenewed(permits(3))).collect();
        let (mut wakes, stands) = (Vec::new(), Instant::now());
        for claim in &claims {
            if let Attempt::Contended(wake) = redis.try_acquire(claim, until()).await.unwrap() {
                wakes.push(wake);
            }
        }
        // Otherwise the machine was so slow that the holders have ended before.
        if wakes.len() == claims.len() {
            let is_over = async || redis.look(&bench.key).await.unwrap().holders.is_empty();
            wait_until("the holders end", is_over).await.unwrap();
            // The last waiter asks first, and lets in the waiters before it.
            let last = ask(&redis, &claims[3], until()).await;
            // After that time the places end.
            if stands.elapsed() < 3 * SECOND {
                assert!(last.is_none());
                let mut slots = Vec::new();
                for wake in &mut wakes[..3] {
                    slots.push(granted(wake).await.slot.unwrap());
                }
                assert_eq!(slots, [0, 1, 2]);
                return;
            }
        }
        drop(wakes);
        for claim in &claims {
            redis.abandon(claim).await.unwrap();
        }
        bench.clear();
    }
    panic!("each time the places had ended: nothing is proven");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_kept_counts_until_its_time_is_over() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let kept = take(&redis, &bench.claim(permits(2), LONG)).await;
    let other = take(&redis, &bench.claim(permits(2), LONG)).await;
    let waiter = bench.claim(permits(2), LONG);
    let wake = stand(&redis, &waiter).await;
    let before = Instant::now();
    assert_eq!(redis.keep(&kept, 5 * SECOND, None).await.unwrap(), Released::Released);
    assert!(is_lost(&redis, &kept).await && !is_lost(&redis, &other).await);
    assert_eq!(redis.release(&kept).await.unwrap(), Released::NotOwner);
    assert_eq!(redis.keep(&kept, SECOND, None).await.unwrap(), Released::NotOwner);
    assert_eq!(redis.look(&bench.key).await.unwrap().note().cloned().unwrap(), kept.claim.note);
    contended(&redis, &bench.claim(permits(2), LONG)).await;
    drop(wake);
    let next = wait(&redis, &waiter, LONG).await;
    took(before, 5 * SECOND);
    assert_eq!(next.slot, kept.slot);
    redis.release(&other).await.unwrap();
    redis.keep(&next, 50 * MS, None).await.unwrap();
    bench.empty(100 * MS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_waiter_costs_nothing_and_a_silent_one_a_short_grant() {
    let bench = Bench::own();
    let (one, two, three) = (bench.open().await, bench.open().await, bench.open().await);
    let hold = take(&one, &bench.claim(permits(1), LONG)).await;
    let _killed = stand(&two, &bench.claim(permits(1), LONG)).await;
    drop(two);
    let _silent =
        (stand(&three, &bench.claim(permits(1), LONG)).await, stand(&three, &bench.claim(permits(1), LONG)).await);
    let waiter = bench.claim(permits(1), LONG);
    let wake = stand(&one, &waiter).await;
    let before = Instant::now();
    one.release(&hold).await.unwrap();
    drop(wake);
    let next = wait(&one, &waiter, LONG).await;
    assert!(before.elapsed() >= 900 * MS, "{:?}", before.elapsed());
    lateness::assert_within(1900 * MS, before, "the grant");
    one.release(&next).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_pushed_to_a_waiter_that_is_gone_is_released() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let hold = take(&one, &bench.claim(permits(1), LONG)).await;
    let gone = bench.claim(permits(1), LONG);
    let wake = stand(&two, &gone).await;
    let line = bench.name() + ":w";
    let mut raw = bench.raw();
    let entries: Vec<(String, f64)> = raw.zrange_withscores(&line, 0, -1).unwrap();
    let processes: Vec<String> = redis::cmd("HGETALL").arg(bench.name() + ":p").query(&mut raw).unwrap();
    drop(wake);
    two.abandon(&gone).await.unwrap();
    // As if the request had arrived after its abandon.
    let _: () = raw.zadd(&line, &entries[0].0, entries[0].1).unwrap();
    let _: () = redis::cmd("HSET").arg(bench.name() + ":p").arg(&processes).query(&mut raw).unwrap();
    let mut next = stand(&one, &bench.claim(permits(1), LONG)).await;
    one.release(&hold).await.unwrap();
    let hold = granted(&mut next).await;
    one.release(&hold).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_permit_leaves_no_trace() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let hold = take(&redis, &bench.claim(permits(1), LONG)).await;
    let before = bench.keys();
    let waiter = bench.claim(permits(1), LONG);
    drop(stand(&redis, &waiter).await);
    assert_ne!(bench.keys(), before);
    for _ in 0..2 {
        redis.abandon(&waiter).await.unwrap();
        assert_eq!(bench.keys(), before);
    }
    redis.abandon(&hold.claim).await.unwrap();
    redis.abandon(&hold.claim).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_dies_with_its_process_leaves_nothing() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    take(&one, &bench.claim(permits(2), SECOND)).await;
    take(&one, &bench.claim(permits(2), SECOND * 11 / 10)).await;
    for _ in 0..3 {
        let _ = stand(&two, &bench.claim(permits(2), LONG)).await;
    }
    drop((one, two));
    bench.empty(4 * SECOND).await;
}

#[tokio::test]
async fn an_uncontended_permit_is_two_commands() {
    let bench = Bench::own();
    let redis = bench.open().await;
    for how in [Queue::Leave, until()] {
        let hold = ask(&redis, &bench.claim(permits(3), LONG), how).await.unwrap();
        redis.release(&hold).await.unwrap();
        let before = bench.calls();
        for _ in 0..10 {
            let hold = ask(&redis, &bench.claim(permits(3), LONG), how).await.unwrap();
            redis.release(&hold).await.unwrap();
        }
        let after = bench.calls();
        assert_eq!(after["evalsha"] - before["evalsha"], 20);
        assert_eq!(after.get("eval"), before.get("eval"));
        assert_eq!(after.get("subscribe"), None);
    }
}

#[tokio::test]
async fn tokens_rise_although_the_counter_was_set_back() {
    let bench = Bench::own();
    let redis = bench.open().await;
    let first = take(&redis, &bench.claim(permits(3), LONG)).await;
    let behind = first.token.unwrap().get() - 10_000_000;
    let _: () = bench.raw().set(FENCE, behind).unwrap();
    let second = take(&redis, &bench.claim(permits(3), LONG)).await;
    assert!(second.token > first.token);
    let _: () = redis::cmd("FLUSHALL").query(&mut bench.raw()).unwrap();
    assert!(is_lost(&redis, &first).await);
    let third = take(&redis, &bench.claim(permits(3), LONG)).await;
    assert!(third.token > second.token);
    assert_eq!(third.slot, Some(0));
    let _: () = bench.raw().set(FENCE, 1_u64 << 53).unwrap();
    let refused = bench.claim(permits(3), LONG);
    assert!(redis.try_acquire(&refused, Queue::Leave).await.is_err());
    // As the engine does after every failure.
    redis.abandon(&refused).await.unwrap();
    redis.release(&third).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}
