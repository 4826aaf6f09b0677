//! The wait queue in the server, and the pushes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::Clock;
use dlock::backends::redis::Redis;
use dlock_contract::{Attempt, Backend, Claim, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{claim, stand, take, until};
use redis::Commands;

use super::database::{Database, HOUR, SECOND, granted, is_contended, renew, unrenewed};
use crate::names::{self, FENCE, K, K_PROCESSES, K_QUEUE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_in_order_over_two_processes() {
    let server = Database::shared();
    let (one, two) = (server.open().await, server.open().await);
    let mut present = take(&one, &claim("k", HOUR)).await;
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..6 {
        let redis = if n % 2 == 0 { &one } else { &two };
        let claim = unrenewed("k");
        waiting.push_back((redis, stand(redis, &claim).await, claim));
    }
    let mut holder = &one;
    while let Some((redis, mut wake, claim)) = waiting.pop_front() {
        // No caller overtakes the wait queue, not even one that asks without joining it.
        assert!(is_contended(one.try_acquire(&self::claim("k", HOUR), Queue::Leave).await));
        assert_eq!(holder.release(&present).await.unwrap(), Released::Released);
        let hold = granted(&mut wake, 60 * SECOND).await.unwrap();
        assert_eq!(hold.claim.owner, claim.owner);
        assert!(hold.token > present.token);
        (present, holder) = (hold, redis);
        // A place ends some seconds after the last request.
        for (redis, wake, claim) in &mut waiting {
            *wake = stand(*redis, claim).await;
        }
    }
    assert_eq!(holder.release(&present).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_handed_over_is_short_until_its_first_renewal() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    for _ in 0..10 {
        let present = take(&redis, &claim("k", HOUR)).await;
        let waiter = claim("k", HOUR);
        let mut wake = stand(&redis, &waiter).await;
        let released = Instant::now();
        redis.release(&present).await.unwrap();
        let told = tokio::time::timeout(60 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
        // An old push is not trusted, because little of so short a lease is left.
        let Signal::Granted(hold) = told else {
            redis.abandon(&waiter).await.unwrap();
            continue;
        };
        assert_eq!(hold.validity.granted, SECOND);
        let left: i64 = server.raw().pttl(K).unwrap();
        assert!(left <= 1000, "{left}");
        match renew(&redis, &[&hold]).await[..] {
            [Standing::Renewed(validity)] => {
                assert_eq!(validity.granted, HOUR);
                let left: i64 = server.raw().pttl(K).unwrap();
                assert!(left > 1000, "{left}");
                return;
            }
            // The machine was slower than the lease.
            _ => assert!(released.elapsed() >= SECOND, "the lease has not ended"),
        }
    }
    panic!("the lease had ended each time: nothing is proven");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unrenewed_hold_that_is_handed_over_lasts_for_its_full_ttl() {
    let server = Database::shared();
    let redis = server.open().await;
    let present = take(&redis, &claim("k", HOUR)).await;
    let mut unrenewed = Claim::new(present.claim.key.clone(), 70 * SECOND, "t").unwrap();
    unrenewed.renewed = false;
    let mut wake = stand(&redis, &Arc::new(unrenewed)).await;
    redis.release(&present).await.unwrap();
    assert_eq!(granted(&mut wake, 60 * SECOND).await.unwrap().validity.granted, 70 * SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_hears_of_a_lost_push_connection_and_asks() {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let mut asked = None;
    for _ in 0..10 {
        let present = take(&one, &claim("k", HOUR)).await;
        let waiter = claim("k", HOUR);
        let mut wake = stand(&two, &waiter).await;
        // Kill the subscriber, and release before it can be back, so the push finds no listener.
        let mut raw = server.raw();
        let killed: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query(&mut raw).unwrap();
        assert_eq!(killed, 1);
        assert_eq!(one.release(&present).await.unwrap(), Released::Released);
        match tokio::time::timeout(60 * SECOND, wake.signal.as_mut().unwrap()).await.unwrap().unwrap() {
            Signal::Ask => {
                assert!(matches!(redis_retry(&two, &waiter).await, Attempt::Acquired(_)));
                asked = Some(waiter);
                break;
            }
            // On a busy machine it was back in time: another try.
            Signal::Granted(hold) => assert_eq!(two.release(&hold).await.unwrap(), Released::Released),
        }
    }
    let waiter = asked.expect("each time the subscriber was back before the release");
    // And pushes arrive again.
    let third = unrenewed("k");
    let mut wake = stand(&one, &third).await;
    two.abandon(&waiter).await.unwrap();
    assert!(granted(&mut wake, 60 * SECOND).await.is_some());
}

async fn redis_retry(redis: &Redis, claim: &Arc<Claim>) -> Attempt {
    redis.try_acquire(claim, until()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_is_skipped_at_once() {
    for _ in 0..5 {
        // The machine may be late once. A dead waiter that is not skipped has the lock for a second, each time.
        if time_behind_a_dead_waiter().await < Duration::from_millis(500) {
            return;
        }
    }
    panic!("the next waiter never got the lock at once: if the machine was busy all the time, nothing is proven");
}

async fn time_behind_a_dead_waiter() -> Duration {
    let server = Database::own(&[]);
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", HOUR)).await;
    let _dead = stand(&two, &claim("k", HOUR)).await;
    let mut next = stand(&one, &unrenewed("k")).await;
    // The store is gone with its connections, as if the process had been killed: nothing was abandoned.
    drop(two);
    let end = Instant::now() + 60 * SECOND;
    loop {
        let clients: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut server.raw()).unwrap();
        if clients.lines().count() == 1 {
            break;
        }
        assert!(Instant::now() < end, "{clients}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let released = Instant::now();
    one.release(&present).await.unwrap();
    let hold = granted(&mut next, 60 * SECOND).await.unwrap();
    let time = released.elapsed();
    one.release(&hold).await.unwrap();
    assert_eq!(server.keys(), [FENCE]);
    time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_process_costs_one_short_grant_for_all_its_places() {
    let server = Database::shared();
    for round in 0..5 {
        let took = time_behind_a_silent_process(&server, &format!("k{round}")).await;
        assert!(took > Duration::from_millis(900), "{took:?}");
        // The machine may be late once. Two short grants cost two seconds, each time.
        if took < Duration::from_millis(1900) {
            return;
        }
    }
    panic!(
        "each place of the silent process had the lock for a second: if the machine was busy all the time, nothing is proven"
    );
}

async fn time_behind_a_silent_process(server: &Database, key: &str) -> Duration {
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim(key, HOUR)).await;
    // Alive and subscribed, but nobody there ever looks at the news.
    let _silent = (stand(&two, &claim(key, HOUR)).await, stand(&two, &claim(key, HOUR)).await);
    let waiter = claim(key, HOUR);
    let mut wake = stand(&one, &waiter).await;
    let before = Instant::now();
    one.release(&present).await.unwrap();
    let hold = loop {
        Clock::system().sleep_until(wake.ask_by.unwrap()).await;
        match one.try_acquire(&waiter, until()).await.unwrap() {
            Attempt::Acquired(hold) => break hold,
            Attempt::Contended(next) => wake = next,
            Attempt::AlreadyRun => panic!("a claim without a period"),
        }
    };
    let took = before.elapsed();
    one.release(&hold).await.unwrap();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_claim_leaves_no_trace_twice() {
    let server = Database::shared();
    let redis = server.open().await;
    // Longer than the test: what an abandon leaves must not go by itself.
    let present = take(&redis, &claim("k", HOUR)).await;
    let waiter = claim("k", HOUR);
    let wake = stand(&redis, &waiter).await;
    assert_eq!(server.keys(), [FENCE, K, K_PROCESSES, K_QUEUE]);
    drop(wake);
    for _ in 0..2 {
        redis.abandon(&waiter).await.unwrap();
        assert_eq!(server.keys(), [FENCE, K]);
    }
    redis.release(&present).await.unwrap();
    assert_eq!(server.keys(), [FENCE]);
    // A grant is given back too, whoever asks.
    let granted = claim("k", HOUR);
    take(&redis, &granted).await;
    redis.abandon(&granted).await.unwrap();
    redis.abandon(&granted).await.unwrap();
    assert_eq!(server.keys(), [FENCE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_grant_that_nobody_waits_for_is_released_at_once() {
    let server = Database::shared();
    for _ in 0..5 {
        // The machine may be late once. A grant that is not released is in the way for a second, each time.
        if time_behind_a_grant_for_nobody(&server).await < Duration::from_millis(500) {
            return;
        }
    }
    panic!(
        "a grant that nobody waited for was never released at once: if the machine was busy all the time, nothing is proven"
    );
}

async fn time_behind_a_grant_for_nobody(server: &Database) -> Duration {
    let (one, two) = (server.open().await, server.open().await);
    let present = take(&one, &claim("k", HOUR)).await;
    let waiter = claim("k", HOUR);
    let wake = stand(&two, &waiter).await;
    // As if its request had come after its abandon: the place is put back behind our back.
    let mut raw = server.raw();
    let line: Vec<(String, f64)> =
        redis::cmd("ZRANGE").arg(K_QUEUE).arg(0).arg(-1).arg("WITHSCORES").query(&mut raw).unwrap();
    let processes: Vec<String> = redis::cmd("HGETALL").arg(K_PROCESSES).query(&mut raw).unwrap();
    two.abandon(&waiter).await.unwrap();
    drop(wake);
    let _: () = redis::cmd("ZADD").arg(K_QUEUE).arg(line[0].1).arg(&line[0].0).query(&mut raw).unwrap();
    let _: () = redis::cmd("HSET").arg(K_PROCESSES).arg(&processes).query(&mut raw).unwrap();
    let mut next = stand(&one, &unrenewed("k")).await;
    let before = Instant::now();
    one.release(&present).await.unwrap();
    let hold = granted(&mut next, 60 * SECOND).await.unwrap();
    let took = before.elapsed();
    one.release(&hold).await.unwrap();
    assert_eq!(server.keys(), [FENCE]);
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_comes_after_the_answer_takes_nothing_away() {
    let server = Database::shared();
    let redis = server.open().await;
    let present = take(&redis, &claim("k", HOUR)).await;
    let waiter = claim("k", HOUR);
    let wake = stand(&redis, &waiter).await;
    let line: Vec<String> = redis::cmd("ZRANGE").arg(K_QUEUE).arg(0).arg(-1).query(&mut server.raw()).unwrap();
    let (process, value) = (&line[0][..16], line[0].splitn(3, ' ').nth(2).unwrap().to_owned());
    redis.release(&present).await.unwrap();
    // It asks although it was pushed to; the wake is dropped only then.
    let Attempt::Acquired(hold) = redis.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
    drop(wake);
    let news = format!("{} 1 1000 {K} {value}", hold.token.unwrap());
    let heard: i64 = server.raw().publish(names::channel(process), news).unwrap();
    assert_eq!(heard, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
}
