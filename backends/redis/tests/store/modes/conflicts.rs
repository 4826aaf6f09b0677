//! Locks of different modes do not mix under one name.

use std::time::Instant;

use dlock::{ErrorKind, Mode};
use dlock_contract::{Attempt, Backend, Queue};
use dlock_testkit::holds::{claim_on, take};
use dlock_testkit::wait_until;
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND, permits, until};

const FAMILIES: [&[fn() -> Mode]; 4] =
    [&[|| Mode::Exclusive], &[|| Mode::Read, || Mode::Write], &[|| permits(2)], &[|| permits(3)]];

/// Asks with the modes of the other families. Returns the first answer that is no conflict.
async fn conflicts(bench: &Bench, redis: &impl Backend, with: usize) -> Option<String> {
    let before = bench.keys();
    for mode in FAMILIES.iter().enumerate().filter(|(n, _)| *n != with).flat_map(|(_, modes)| *modes) {
        for how in [Queue::Leave, until()] {
            for fair in [false, true] {
                let claim = claim_on(&bench.key, LONG, |claim| (claim.mode, claim.fair) = (mode(), fair));
                let answer = redis.try_acquire(&claim, how).await;
                redis.abandon(&claim).await.unwrap();
                let is_conflict = answer
                    .as_ref()
                    .is_err_and(|error| *error.kind() == ErrorKind::KeyConflict && !error.is_retryable());
                if !is_conflict {
                    return Some(format!("{:?} with family {with}: {answer:?}", claim.mode));
                }
            }
        }
    }
    (bench.keys() != before).then(|| format!("{:?} became {:?}", before, bench.keys()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_use_by_one_family_is_a_conflict_for_the_others() {
    for (n, modes) in FAMILIES.iter().enumerate() {
        for mode in *modes {
            let bench = Bench::shared();
            let (one, two) = (bench.open().await, bench.open().await);
            let hold = take(&one, &bench.claim(mode(), LONG)).await;
            assert_eq!(conflicts(&bench, &two, n).await, None);
            assert_eq!(one.release(&hold).await.unwrap(), dlock_contract::Released::Released);
            assert_eq!(bench.keys(), [""; 0]);
            // And is free for any of them afterwards.
            let next = take(&two, &bench.claim(FAMILIES[(n + 1) % 4][0](), LONG)).await;
            assert!(next.token > hold.token);
            two.release(&next).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_only_waited_for_is_in_use_too() {
    for (n, mode) in [(0, Mode::Exclusive), (1, Mode::Write)] {
        let bench = Bench::shared();
        let (one, two) = (bench.open().await, bench.open().await);
        let mut is_proven = false;
        for _ in 0..10 {
            take(&one, &bench.claim(mode, 500 * MS)).await;
            let (waiter, stands) = (bench.claim(mode, LONG), Instant::now());
            let wake = two.try_acquire(&waiter, until()).await.unwrap();
            let is_over = async || one.look(&bench.key).await.unwrap().holders.is_empty();
            if matches!(wake, Attempt::Contended(_)) {
                wait_until("the lease ends", is_over).await.unwrap();
                let found = conflicts(&bench, &one, n).await;
                // After that time the place ends, and the key is free.
                if stands.elapsed() < 3 * SECOND {
                    assert_eq!(found, None);
                    is_proven = true;
                }
            }
            drop(wake);
            two.abandon(&waiter).await.unwrap();
            if is_proven {
                break;
            }
            bench.clear();
        }
        assert!(is_proven, "each time the place had ended: nothing is proven");
        assert_eq!(bench.keys(), [""; 0]);
        take(&one, &bench.claim(permits(7), SECOND)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_value_under_the_name_is_a_conflict_and_stays() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let name = bench.name();
    let writes: [fn(&mut redis::Connection, &str); 4] = [
        |raw, name| raw.set(name, "somebody else's").unwrap(),
        |raw, name| raw.set(name, "dlock:permits").unwrap(),
        |raw, name| raw.hset(name, "a", "b").unwrap(),
        |raw, name| raw.lpush(name, "a").unwrap(),
    ];
    for write in writes {
        let mut raw = bench.raw();
        write(&mut raw, &name);
        let before: Vec<u8> = redis::cmd("DUMP").arg(&name).query(&mut raw).unwrap();
        for mode in [Mode::Read, Mode::Write, permits(3)] {
            for how in [Queue::Leave, until()] {
                let claim = bench.claim(mode, LONG);
                let error = redis.try_acquire(&claim, how).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::KeyConflict);
                redis.abandon(&claim).await.unwrap();
            }
        }
        let after: Vec<u8> = redis::cmd("DUMP").arg(&name).query(&mut raw).unwrap();
        assert_eq!(before, after);
        assert_eq!(bench.keys(), ["l"]);
        let _: () = raw.del(&name).unwrap();
    }
}

#[tokio::test]
async fn a_hold_whose_key_is_deleted_or_foreign_hears_of_its_loss() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let hold = take(&redis, &bench.claim(permits(3), LONG)).await;
    // Deleted by hand: the lock is gone, even if the name has another value.
    let _: () = bench.raw().del(bench.name()).unwrap();
    assert!(super::bench::is_lost(&redis, &hold).await);
    assert!(redis.look(&bench.key).await.unwrap().note().cloned().is_none());
    assert_eq!(redis.release(&hold).await.unwrap(), dlock_contract::Released::NotOwner);
    assert_eq!(bench.keys(), [""; 0]);
    let other = take(&redis, &bench.claim(permits(3), LONG)).await;
    let _: () = bench.raw().set(bench.name(), "foreign").unwrap();
    assert!(super::bench::is_lost(&redis, &other).await);
    assert_eq!(redis.release(&other).await.unwrap(), dlock_contract::Released::NotOwner);
    let _: () = bench.raw().del(bench.name()).unwrap();
    // A later lock does not take over the old shares.
    let next = take(&redis, &bench.claim(permits(3), 50 * MS)).await;
    assert_eq!(next.slot, Some(0));
    bench.empty(SECOND).await;
}
