//! The counter of fencing tokens.

use dlock::{ErrorKind, Key, LockKey};
use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_testkit::holds::{claim, claim_on, take, until};
use redis::Commands;

use super::database::{Database, HOUR};
use crate::names::{FENCE, K};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_rises_after_everything_was_flushed() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let mut last = take(&redis, &claim("k", HOUR)).await;
    for round in 0..3 {
        let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
        if round == 1 {
            // Somebody counts on without a seed.
            let _: () = server.raw().set(FENCE, 5).unwrap();
        }
        let waiter = claim("k", HOUR);
        let Attempt::Acquired(next) = redis.try_acquire(&waiter, until()).await.unwrap() else { panic!() };
        assert!(next.token > last.token, "{round}");
        assert_eq!(redis.release(&next).await.unwrap(), Released::Released);
        last = next;
    }
    // Set back, but not so far that it shows: what this process has seen is the bound.
    let behind = last.token.unwrap().get() - 10_000_000;
    let _: () = server.raw().set(FENCE, behind).unwrap();
    let next = take(&redis, &claim("k", HOUR)).await;
    assert!(next.token > last.token);
    redis.release(&next).await.unwrap();
    // A store that has seen nothing yet.
    let fresh = server.open().await;
    let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
    let next = take(&fresh, &claim("k", HOUR)).await;
    assert!(next.token > last.token);
    fresh.release(&next).await.unwrap();
    // Not only beyond the clock, but beyond all that was seen, also for a connection that is opened later.
    let ahead = last.token.unwrap().get() + 3_600_000_000;
    let _: () = server.raw().set(FENCE, ahead).unwrap();
    let far = take(&redis, &claim("k", HOUR)).await;
    assert_eq!(far.token.unwrap().get(), ahead + 1);
    redis.release(&far).await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query(&mut server.raw()).unwrap();
    let next = take(&redis, &claim("k", HOUR)).await;
    assert!(next.token > far.token);
}

#[tokio::test]
async fn a_spent_or_broken_counter_is_an_error_and_no_lock_is_kept() {
    let server = Database::shared();
    let redis = server.open().await;
    for (counter, kind) in [
        (i64::MAX.to_string(), ErrorKind::FenceExhausted),
        ((1_u64 << 53).to_string(), ErrorKind::FenceExhausted),
        ("junk".into(), ErrorKind::CorruptState),
    ] {
        let _: () = server.raw().set(FENCE, &counter).unwrap();
        // Longer than the test: what the abandon leaves must not go by itself.
        let claim = claim("k", HOUR);
        let error = redis.try_acquire(&claim, Queue::Leave).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{counter}");
        assert_eq!(server.keys(), [FENCE, K]);
        // As the engine does after every failure, and nobody else.
        redis.abandon(&claim).await.unwrap();
        assert_eq!(server.keys(), [FENCE]);
    }
}

#[tokio::test]
async fn very_many_locked_keys_leave_no_key_behind() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let cycles = (0..64_u64).map(|lane| {
        let redis = &redis;
        async move {
            let mut last = None;
            for n in 0..1600 {
                let key = LockKey::new("test", Key::text("k").value(&(lane * 1600 + n))).unwrap();
                let hold = take(redis, &claim_on(&key, HOUR, |_| ())).await;
                assert!(hold.token > last);
                last = hold.token;
                redis.release(&hold).await.unwrap();
            }
        }
    });
    futures::future::join_all(cycles).await;
    assert_eq!(server.keys(), [FENCE]);
}
