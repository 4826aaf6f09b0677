//! Releases that ask for the next caller of their process.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Clock, ErrorKind, Mode, Registry, Wait};
use dlock_contract::{Attempt, Backend, Claim, Exchange, Hold, Queue, Released, Standing};
use dlock_testkit::holds::{claim, stand, take};
use redis::Commands;
use tokio::task::JoinSet;

use super::database::{Database, HOUR, SECOND, granted, unrenewed};
use crate::names::{FENCE, K, K_PROCESSES, K_QUEUE};

/// How many commands clients have sent, by name.
fn sent<S>(server: &Database<S>) -> BTreeMap<String, u64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.raw()).unwrap();
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(line).collect()
}

/// Two stores, and a hold of the first one's, which has waited for it: pushes reach it.
async fn known_as_waiter<S>(server: &Database<S>) -> (Redis, Redis, Hold) {
    let (one, other) = (server.open().await, server.open().await);
    let former = take(&other, &claim("k", HOUR)).await;
    let mut wake = stand(&one, &unrenewed("k")).await;
    other.release(&former).await.unwrap();
    let held = granted(&mut wake, 60 * SECOND).await.unwrap();
    (one, other, held)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_process_cost_one_command_each() {
    let server = Database::own(&[]);
    let registry = Registry::new();
    registry.install("redis", server.open().await).unwrap();
    registry.set_default("redis").unwrap();
    let lock = || registry.lock("k").wait(Wait::Forever);
    // The first ones learn that there are others.
    let first = lock().acquire().await.unwrap();
    let wait_for = async |count: usize| {
        let (waiting, mut all) = tokio::sync::mpsc::channel::<()>(1);
        let begin = |_| {
            let (mut run, waiting) = (Box::pin(lock().run(async |_| ())), waiting.clone());
            async move {
                // From its first poll on it waits in the process.
                let first = futures::poll!(&mut run);
                drop(waiting);
                if let Poll::Ready(done) = first { done } else { run.await }
            }
        };
        let waiters: JoinSet<_> = (0..count).map(begin).collect();
        drop(waiting);
        assert!(all.recv().await.is_none());
        waiters
    };
    let warm = wait_for(3).await;
    first.release().await.unwrap();
    warm.join_all().await.into_iter().collect::<dlock::Result<()>>().unwrap();
    let held = lock().acquire().await.unwrap();
    let others = wait_for(100).await;
    let before = sent(&server);
    held.release().await.unwrap();
    others.join_all().await.into_iter().collect::<dlock::Result<()>>().unwrap();
    let after = sent(&server);
    let scripts = after["evalsha"] - before["evalsha"];
    // Each release but the last one asks for the next. On a busy machine a few holds are renewed too. Two commands for each waiter
    // would be 200.
    assert!((101..150).contains(&scripts), "{scripts}");
    assert_eq!(server.keys(), [FENCE]);
}

/// The queue has a foreign value. The lock is still freed, and a caller that asks for a place hears what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_frees_the_lock_although_its_request_for_the_next_caller_fails() {
    let server = Database::own(&[]);
    let (one, _, held) = known_as_waiter(&server).await;
    let _: () = server.raw().set(K_QUEUE, "theirs").unwrap();
    let next = claim("k", HOUR);
    let until = Clock::system().now().after(60 * SECOND);
    let (released, asked) = one.release_to(&held, &next, until).await.unwrap();
    assert!(released == Released::Released && asked.is_none(), "{released:?} {asked:?}");
    assert_eq!(server.keys(), [FENCE, K_QUEUE]);
    let told = one.try_acquire(&next, Queue::until(until)).await.unwrap_err();
    assert_eq!(*told.kind(), ErrorKind::KeyConflict, "{told}");
}

/// An operator has put another value there meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_asks_for_the_next_caller_leaves_a_foreign_value_alone() {
    let server = Database::own(&[]);
    for foreign in ["text", "list"] {
        let (one, _, held) = known_as_waiter(&server).await;
        let mut raw = server.raw();
        let _: () = raw.del(K).unwrap();
        let _: () = match foreign {
            "text" => raw.set_ex(K, "theirs", 100).unwrap(),
            _ => raw.rpush(K, "theirs").unwrap(),
        };
        let next = claim("k", HOUR);
        let until = Clock::system().now().after(60 * SECOND);
        let (released, asked) = one.release_to(&held, &next, until).await.unwrap();
        assert!(released == Released::NotOwner && asked.is_none(), "{released:?} {asked:?}");
        assert_eq!(server.keys(), [FENCE, K]);
        let _: () = raw.del(K).unwrap();
    }
}

/// The lock was taken before the token could be drawn. It is released, and the next caller hears of the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_can_draw_no_token_for_the_next_caller_leaves_nothing() {
    for counter in ["junk", "9223372036854775807"] {
        let server = Database::own(&[]);
        let (one, _, held) = known_as_waiter(&server).await;
        let _: () = server.raw().set(FENCE, counter).unwrap();
        let next = claim("k", HOUR);
        let until = Clock::system().now().after(60 * SECOND);
        let (released, asked) = one.release_to(&held, &next, until).await.unwrap();
        assert!(released == Released::Released && asked.is_none(), "{released:?} {asked:?}");
        assert_eq!(server.keys(), [FENCE], "{counter}");
    }
}

/// A place in a queue with one broken key is removed too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_can_take_no_place_for_the_next_caller_leaves_nothing() {
    let server = Database::own(&[]);
    let (one, other, held) = known_as_waiter(&server).await;
    let _behind = stand(&other, &claim("k", HOUR)).await;
    let mut raw = server.raw();
    let _: () = raw.del(K_PROCESSES).unwrap();
    let _: () = raw.set(K_PROCESSES, "theirs").unwrap();
    let next = claim("k", HOUR);
    let until = Clock::system().now().after(60 * SECOND);
    let (released, asked) = one.release_to(&held, &next, until).await.unwrap();
    assert!(released == Released::Released && asked.is_none(), "{released:?} {asked:?}");
    let places: Vec<String> = raw.zrange(K_QUEUE, 0, -1).unwrap();
    assert!(places.iter().all(|place| !place.contains(&next.owner.to_hex())), "{places:?}");
}

/// As short as a pushed grant, because the next caller may have ended with the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_the_next_caller_has_not_seen_yet_is_short() {
    let server = Database::own(&[]);
    let (one, _, held) = known_as_waiter(&server).await;
    let until = Clock::system().now().after(60 * SECOND);
    let next = claim("k", HOUR);
    let asked = std::time::Instant::now();
    let (_, Some(Attempt::Acquired(hold))) = one.release_to(&held, &next, until).await.unwrap() else { panic!() };
    let left: i64 = server.raw().pttl(K).unwrap();
    assert!(hold.validity.granted == SECOND && left <= 1000, "{:?} {left}", hold.validity);
    // The first renewal makes the lease full. A hold that is not renewed has the full lease from the beginning.
    match one.renew(&[&hold]).await.remove(0).unwrap() {
        Standing::Renewed(_) => assert!(server.raw().pttl::<_, i64>(K).unwrap() > 1000),
        Standing::Lost => assert!(asked.elapsed() >= SECOND, "the lease has not ended"),
    }
    let mut unrenewed = Claim::new(hold.claim.key.clone(), 7 * SECOND, "t").unwrap();
    unrenewed.renewed = false;
    let unrenewed = std::sync::Arc::new(unrenewed);
    let (_, Some(Attempt::Acquired(hold))) = one.release_to(&hold, &unrenewed, until).await.unwrap() else { panic!() };
    assert_eq!(hold.validity.granted, 7 * SECOND);
}

/// The waiter of a process that has ended, with its place ahead of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_gives_the_lock_to_no_caller_that_does_not_listen() {
    let server = Database::own(&[]);
    let (one, _, held) = known_as_waiter(&server).await;
    let dead = server.open().await;
    let _place = stand(&dead, &claim("k", HOUR)).await;
    drop(dead);
    let end = tokio::time::Instant::now() + 20 * SECOND;
    loop {
        let listen: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("pubsub").query(&mut server.raw()).unwrap();
        if listen.lines().count() == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{listen}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let until = Clock::system().now().after(60 * SECOND);
    let (released, asked) = one.release_to(&held, &claim("k", HOUR), until).await.unwrap();
    let Some(Attempt::Acquired(hold)) = asked else { panic!("{asked:?}") };
    assert!(released == Released::Released && hold.token > held.token);
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(server.keys(), [FENCE]);
}

/// A caller that no push would reach, and a caller that does not want a plain lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_ask_for_a_caller_that_could_not_join_the_queue() {
    let server = Database::own(&[]);
    let until = Clock::system().now().after(60 * SECOND);
    let (one, _, held) = known_as_waiter(&server).await;
    let deaf = server.open().await;
    let mut reads = Claim::new(held.claim.key.clone(), HOUR, "t").unwrap();
    reads.mode = Mode::Read;
    let answer = one.release_to(&held, &std::sync::Arc::new(reads), until).await.unwrap();
    assert!(matches!(answer, (Released::Released, None)), "{answer:?}");
    let held = take(&deaf, &claim("k", HOUR)).await;
    let answer = deaf.release_to(&held, &claim("k", HOUR), until).await.unwrap();
    assert!(matches!(answer, (Released::Released, None)), "{answer:?}");
    assert_eq!(server.keys(), [FENCE]);
}
