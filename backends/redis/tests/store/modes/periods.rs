//! Runs once per period, and holds that outlast their end.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dlock::{ErrorKind, Mode};
use dlock_contract::{Attempt, Backend, Claim, Hold, Keeps, Periods, Queue, Released, RunEnd};
use dlock_testkit::holds::{take, token};
use dlock_testkit::wait_until;
use redis::Commands;

use super::bench::{Bench, LONG, MS, SECOND, ask, contended, granted, is_lost, stand, took, until, wait};

const HOUR: Duration = Duration::from_secs(3600);

async fn already_run(redis: &impl Backend, claim: &Arc<Claim>) -> bool {
    matches!(redis.try_acquire(claim, Queue::Leave).await.unwrap(), Attempt::AlreadyRun)
}

#[tokio::test]
async fn a_kept_key_has_no_holder_until_its_time_is_over() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let hold = take(&one, &bench.claim(Mode::Exclusive, LONG)).await;
    let before = Instant::now();
    assert_eq!(one.keep(&hold, 5 * SECOND, None).await.unwrap(), Released::Released);
    assert!(is_lost(&one, &hold).await);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(one.keep(&hold, LONG, None).await.unwrap(), Released::NotOwner);
    one.abandon(&hold.claim).await.unwrap();
    contended(&two, &bench.claim(Mode::Exclusive, SECOND)).await;
    assert_eq!(two.look(&bench.key).await.unwrap().note().cloned().unwrap(), hold.claim.note);
    assert!((1..=5000).contains(&bench.left()), "{}", bench.left());
    let next = wait(&two, &bench.claim(Mode::Exclusive, LONG), LONG).await;
    took(before, 5 * SECOND);
    assert!(next.token > hold.token);
    // Nothing to keep is a release.
    assert_eq!(two.keep(&next, Duration::ZERO, None).await.unwrap(), Released::Released);
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_a_kept_key_when_its_time_is_over() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let hold = take(&one, &bench.claim(Mode::Exclusive, LONG)).await;
    let waiter = bench.claim(Mode::Exclusive, LONG);
    let mut wake = stand(&two, &waiter).await;
    let before = Instant::now();
    assert_eq!(one.keep(&hold, 2 * SECOND, None).await.unwrap(), Released::Released);
    // It was notified, because otherwise it would have slept for longer.
    let told = tokio::time::timeout(LONG / 2, wake.signal.as_mut().unwrap()).await.unwrap().unwrap();
    assert!(matches!(told, dlock_contract::Signal::Ask));
    let next = wait(&two, &waiter, LONG).await;
    took(before, 2 * SECOND);
    assert_eq!(two.release(&next).await.unwrap(), Released::Released);
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test]
async fn a_period_is_started_once_however_many_callers_ask() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    for end in [RunEnd::Failed, RunEnd::Succeeded { took: SECOND }] {
        let bench = Bench::shared();
        let claim = bench.run(HOUR, true, LONG);
        let hold = take(&one, &claim).await;
        // A lost answer: the run is still this claim's.
        assert!(token(&take(&one, &claim).await) > token(&hold));
        // Also while the winner holds. A caller with `rerun` waits for the end of the run.
        assert!(already_run(&two, &bench.run(HOUR, false, LONG)).await);
        contended(&two, &bench.run(HOUR, true, LONG)).await;
        assert_eq!(one.end_run(&hold, end).await.unwrap(), Released::Released);
        assert_eq!(bench.keys(), ["l:r"]);
        for rerun in [false, true] {
            assert!(already_run(&two, &bench.run(HOUR, rerun, LONG)).await);
        }
        assert_eq!(one.end_run(&hold, end).await.unwrap(), Released::NotOwner);
        // A claim without a period is not affected.
        let plain = take(&two, &bench.claim(Mode::Exclusive, LONG)).await;
        assert!(already_run(&one, &bench.run(HOUR, true, LONG)).await);
        two.release(&plain).await.unwrap();
        let left: i64 = bench.raw().pttl(bench.name() + ":r").unwrap();
        assert!(left > 399 * 86_400_000, "{left}");
    }
    assert!(one.last_success(&bench.key).await.unwrap().is_none());
}

#[tokio::test]
async fn a_success_is_remembered_and_a_failure_is_not() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let clock = SystemTime::now;
    let before = clock();
    let hold = take(&redis, &bench.run(50 * MS, false, LONG)).await;
    let after = clock();
    tokio::time::sleep(20 * MS).await;
    redis.end_run(&hold, RunEnd::Succeeded { took: 2 * SECOND }).await.unwrap();
    let success = redis.last_success(&bench.key).await.unwrap().unwrap();
    assert_eq!((success.took, &success.note), (2 * SECOND, &hold.claim.note));
    assert!(before - MS <= success.started && success.started <= after + MS, "{success:?}");
    tokio::time::sleep(50 * MS).await;
    let failing = take(&redis, &bench.run(50 * MS, false, LONG)).await;
    redis.end_run(&failing, RunEnd::Failed).await.unwrap();
    assert_eq!(redis.last_success(&bench.key).await.unwrap().unwrap(), success);
    // Both at once: kept, and recorded.
    tokio::time::sleep(50 * MS).await;
    let both = take(&redis, &bench.run(50 * MS, false, LONG)).await;
    redis.keep(&both, 5 * SECOND, Some(RunEnd::Succeeded { took: SECOND })).await.unwrap();
    assert!(redis.last_success(&bench.key).await.unwrap().unwrap().started > success.started);
    assert_eq!(bench.keys(), ["l", "l:r"]);
    wait_until("the kept time is over", async || bench.keys() == ["l:r"]).await.unwrap();
}

#[tokio::test]
async fn a_crashed_run_is_repeated_only_if_asked_for_and_only_when_its_lease_is_over() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let crashed = take(&one, &bench.run(HOUR, false, 5 * SECOND)).await;
    contended(&two, &bench.run(HOUR, true, LONG)).await;
    wait_until("the lease ends", async || bench.left() < 0).await.unwrap();
    assert!(already_run(&two, &bench.run(HOUR, false, LONG)).await);
    let again = take(&two, &bench.run(HOUR, true, LONG)).await;
    assert!(again.token > crashed.token);
    // The first owner's word counts no more.
    assert_eq!(one.end_run(&crashed, RunEnd::Succeeded { took: SECOND }).await.unwrap(), Released::NotOwner);
    assert!(one.last_success(&bench.key).await.unwrap().is_none());
    // Ended without a word about the run: as a crash.
    assert_eq!(two.release(&again).await.unwrap(), Released::Released);
    let third = take(&one, &bench.run(HOUR, true, LONG)).await;
    assert_eq!(one.end_run(&third, RunEnd::Failed).await.unwrap(), Released::Released);
    assert!(already_run(&two, &bench.run(HOUR, true, LONG)).await);
}

#[tokio::test]
async fn the_next_period_waits_for_a_run_that_is_not_over() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let long = take(&one, &bench.run(100 * MS, false, LONG)).await;
    tokio::time::sleep(110 * MS).await;
    let next = bench.run(100 * MS, false, LONG);
    match two.try_acquire(&next, until()).await.unwrap() {
        Attempt::Contended(wake) => {
            assert!(wake.signal.is_none() && wake.lease_left.unwrap() > LONG / 2);
        }
        other => panic!("{other:?}"),
    }
    // It is in no queue.
    assert_eq!(bench.keys(), ["l", "l:r"]);
    one.end_run(&long, RunEnd::Succeeded { took: 110 * MS }).await.unwrap();
    take(&two, &next).await;
}

#[tokio::test]
async fn an_abandoned_start_gives_its_period_back_also_when_its_lease_is_over() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let late = bench.run(HOUR, false, 50 * MS);
    take(&redis, &late).await;
    tokio::time::sleep(100 * MS).await;
    redis.abandon(&late).await.unwrap();
    assert_eq!(bench.keys(), ["l:r"]);
    let claim = bench.run(HOUR, false, LONG);
    take(&redis, &claim).await;
    // Not the next one's.
    redis.abandon(&late).await.unwrap();
    assert!(already_run(&redis, &bench.run(HOUR, false, LONG)).await);
    redis.abandon(&claim).await.unwrap();
    let hold = take(&redis, &bench.run(HOUR, false, LONG)).await;
    redis.end_run(&hold, RunEnd::Failed).await.unwrap();
    redis.abandon(&hold.claim).await.unwrap();
    assert!(already_run(&redis, &bench.run(HOUR, true, LONG)).await, "it was run");
}

/// Without this, the run would be started a second time when its lease is over.
#[tokio::test]
async fn a_run_that_ends_at_a_server_without_memory_has_ended() {
    for end in [RunEnd::Failed, RunEnd::Succeeded { took: SECOND }] {
        let bench = Bench::own();
        let (one, two) = (bench.open().await, bench.open().await);
        let hold = take(&one, &bench.run(HOUR, true, LONG)).await;
        bench.starve();
        let ended = one.end_run(&hold, end).await;
        bench.feed();
        let _: u64 = bench.raw().del(bench.name()).unwrap();
        assert!(already_run(&two, &bench.run(HOUR, true, LONG)).await, "it would run twice: {ended:?}");
        assert_eq!(ended.unwrap(), Released::Released);
        let success = two.last_success(&bench.key).await.unwrap();
        assert_eq!(success.map(|last| last.note), (end != RunEnd::Failed).then(|| hold.claim.note.clone()));
    }
}

#[tokio::test]
async fn a_key_is_kept_by_a_server_without_memory() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    let hold = take(&one, &bench.claim(Mode::Exclusive, LONG)).await;
    bench.starve();
    let ended = one.keep(&hold, HOUR, None).await;
    bench.feed();
    assert!(bench.left() > 60_000, "{} ms left after {ended:?}", bench.left());
    assert_eq!(ended.unwrap(), Released::Released);
    assert!(is_lost(&one, &hold).await);
    contended(&two, &bench.claim(Mode::Exclusive, SECOND)).await;
}

#[tokio::test]
async fn an_abandoned_start_gives_its_period_back_at_a_server_without_memory_too() {
    for is_over in [false, true] {
        let bench = Bench::own();
        let (one, two) = (bench.open().await, bench.open().await);
        let claim = bench.run(HOUR, false, LONG);
        take(&one, &claim).await;
        if is_over {
            let _: u64 = bench.raw().del(bench.name()).unwrap();
        }
        bench.starve();
        let abandoned = one.abandon(&claim).await;
        assert_eq!(bench.keys(), ["l:r"], "{abandoned:?}");
        abandoned.unwrap();
        bench.feed();
        take(&two, &bench.run(HOUR, false, LONG)).await;
    }
}

async fn ask_run(redis: &impl Backend, claim: &Arc<Claim>) -> bool {
    matches!(redis.try_acquire(claim, Queue::Leave).await.unwrap(), Attempt::Acquired(_))
}

#[tokio::test]
async fn a_period_of_another_length_is_compared_by_its_time() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let hold = take(&redis, &bench.run(MS, false, LONG)).await;
    redis.end_run(&hold, RunEnd::Failed).await.unwrap();
    // Its number is far lower. The boundary that was started may be after the nearest one of this length, or before.
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let is_later = now.as_secs() % 86_400 >= 43_200;
    assert_eq!(already_run(&redis, &bench.run(day, false, LONG)).await, !is_later);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_hands_the_lock_to_the_first_waiter() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let run = take(&redis, &bench.run(HOUR, false, LONG)).await;
    let mut wake = stand(&redis, &bench.claim(Mode::Exclusive, LONG)).await;
    redis.end_run(&run, RunEnd::Failed).await.unwrap();
    let next: Hold = granted(&mut wake).await;
    assert!(next.token > run.token);
    redis.release(&next).await.unwrap();
    assert_eq!(bench.keys(), ["l:r"]);
}

#[tokio::test]
async fn a_hundred_callers_start_one_run() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let asked = (0..100).map(|n| {
        let (redis, claim) = (if n % 2 == 0 { &one } else { &two }, bench.run(HOUR, n % 3 == 0, LONG));
        async move { ask_run(redis, &claim).await }
    });
    let won = futures::future::join_all(asked).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

#[tokio::test]
async fn a_run_takes_one_command_to_start_and_one_to_end() {
    let bench = Bench::own();
    let redis = bench.open().await;
    for n in 0..2 {
        let before = bench.calls();
        let hold = take(&redis, &bench.run(MS, false, LONG)).await;
        redis.end_run(&hold, RunEnd::Failed).await.unwrap();
        let after = bench.calls();
        let spent = |name: &str| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
        assert_eq!(spent("eval"), if n == 0 { 2 } else { 0 });
        assert_eq!(spent("evalsha"), 2);
        tokio::time::sleep(3 * MS).await;
    }
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut bench.raw()).unwrap();
    let hold = take(&redis, &bench.run(MS, false, LONG)).await;
    redis.keep(&hold, MS, None).await.unwrap();
}

#[tokio::test]
async fn a_foreign_value_in_place_of_a_run_record_is_an_error() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let name = bench.name() + ":r";
    let _: () = bench.raw().set(&name, "x").unwrap();
    let error = redis.try_acquire(&bench.run(HOUR, false, LONG), Queue::Leave).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyConflict);
    assert_eq!(bench.keys(), ["l:r"]);
    let _: () = bench.raw().del(&name).unwrap();
    let _: () = bench.raw().hset(&name, "ok", "junk").unwrap();
    assert_eq!(*redis.last_success(&bench.key).await.unwrap_err().kind(), ErrorKind::CorruptState);
    let _: () = bench.raw().hset(&name, "run", "junk").unwrap();
    assert!(ask(&redis, &bench.run(HOUR, false, LONG), Queue::Leave).await.is_some());
    let _: () = bench.raw().del(&name).unwrap();
}
