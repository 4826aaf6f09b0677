//! A server at its `maxmemory`.

use dlock::Mode;
use dlock_contract::{Backend, Hold, Queue, Released, Standing};
use dlock_testkit::holds::{confirm, take};

use super::bench::{Bench, LONG, MS, granted, is_lost, permits, stand, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_every_mode_are_renewed_by_a_server_without_memory() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    let end = || -> i64 { redis::cmd("PEXPIRETIME").arg(bench.name()).query(&mut bench.raw()).unwrap() };
    let renewed = async |hold: &Hold| {
        let before = end();
        tokio::time::sleep(5 * MS).await;
        bench.starve();
        assert!(matches!(confirm(&one, hold).await, Standing::Renewed(_)), "{:?}", hold.claim.mode);
        assert!(end() > before, "{:?}", hold.claim.mode);
    };
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(1)] {
        let hold = take(&one, &bench.claim(mode, LONG)).await;
        renewed(&hold).await;
        bench.feed();
        // And the first time after it was handed on.
        let waits = if mode == Mode::Read { Mode::Write } else { mode };
        let mut wake = stand(&one, &bench.unrenewed(waits)).await;
        bench.starve();
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released, "{mode:?}");
        let hold = granted(&mut wake).await;
        renewed(&hold).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released, "{mode:?}");
        bench.feed();
        assert_eq!(bench.keys(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_hears_of_its_loss_from_a_server_without_memory() {
    let bench = Bench::own();
    let redis = bench.open().await;
    let lost = take(&redis, &bench.claim(permits(1), LONG)).await;
    redis.release(&lost).await.unwrap();
    let hold = take(&redis, &bench.claim(permits(1), LONG)).await;
    let waiter = bench.claim(permits(1), LONG);
    let _wake = stand(&redis, &waiter).await;
    bench.starve();
    assert!(is_lost(&redis, &lost).await);
    assert_eq!(redis.release(&lost).await.unwrap(), Released::NotOwner);
    redis.abandon(&waiter).await.unwrap();
    assert_eq!(redis.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_serves_known_waiters_and_takes_no_new_ones() {
    for mode in [Mode::Write, permits(1)] {
        let bench = Bench::own();
        let (one, two) = (bench.open().await, bench.open().await);
        let hold = take(&one, &bench.claim(mode, LONG)).await;
        let waiter = bench.unrenewed(mode);
        drop(stand(&two, &waiter).await);
        bench.starve();
        // As after an answer that was lost.
        let again = take(&one, &hold.claim).await;
        assert!(again.token > hold.token);
        let mut wake = stand(&two, &waiter).await;
        let error = two.try_acquire(&bench.claim(mode, LONG), until()).await.unwrap_err();
        assert_eq!(error.code(), Some("OOM"), "{error}");
        assert_eq!(one.release(&again).await.unwrap(), Released::Released);
        let hold = granted(&mut wake).await;
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(bench.keys(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_lets_no_new_holder_in() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    let refused = async |mode| {
        bench.starve();
        let error = two.try_acquire(&bench.claim(mode, LONG), Queue::Leave).await.unwrap_err();
        assert_eq!(error.code(), Some("OOM"), "{mode:?}: {error}");
        assert!(error.is_retryable());
    };
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(2)] {
        refused(mode).await;
        assert_eq!(bench.keys(), [""; 0], "{mode:?}");
        bench.feed();
        if matches!(mode, Mode::Read | Mode::Permits(_)) {
            // Beside one that is there, too.
            let hold = take(&one, &bench.claim(mode, LONG)).await;
            let before = bench.keys();
            refused(mode).await;
            assert_eq!(bench.keys(), before, "{mode:?}");
            assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
            bench.feed();
        }
        let hold = take(&two, &bench.claim(mode, LONG)).await;
        assert_eq!(two.release(&hold).await.unwrap(), Released::Released);
    }
}
