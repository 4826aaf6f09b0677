//! One start in each period, and the last success.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use dlock::backends::sqlite::Sqlite;
use dlock::{Clock, Mode};
use dlock_contract::{Attempt, Backend, Keeps, Periods, Queue, Released, RunEnd, Standing};
use dlock_testkit::drop_after;
use dlock_testkit::holds::{claim_in, confirm, key, take, token};

use crate::store::{Store, TTL, already_run, conflicts, contended, mode_claim, run_claim};

const HOUR: Duration = Duration::from_secs(3600);
const TOOK: Duration = Duration::from_millis(1234);
const SUCCEEDED: RunEnd = RunEnd::Succeeded { took: TOOK };
const FAILED: RunEnd = RunEnd::Failed;
/// As if the last start had been one period ago.
const A_PERIOD_AGO: &str = "UPDATE dlock_runs SET boundary = boundary - 3600 * 1000000000";

#[tokio::test]
async fn a_period_is_started_once_while_it_runs_and_after_every_kind_of_end() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    for run in [None, Some(FAILED), Some(SUCCEEDED)] {
        let hold = take(&one, &run_claim(HOUR, false)).await;
        already_run(&other, &run_claim(HOUR, false)).await;
        contended(&other, &run_claim(HOUR, true), Queue::Leave).await;
        assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
        let ended = match run {
            None => one.release(&hold).await,
            Some(run) => one.end_run(&hold, run).await,
        };
        assert_eq!(ended.unwrap(), Released::Released);
        assert_eq!(store.rows().await, 0);
        already_run(&other, &run_claim(HOUR, false)).await;
        store.change(A_PERIOD_AGO).await;
    }
}

#[tokio::test]
async fn a_later_start_stops_an_earlier_period_too() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &run_claim(HOUR, false)).await;
    one.end_run(&hold, FAILED).await.unwrap();
    store.change("UPDATE dlock_runs SET boundary = boundary + 3600 * 1000000000").await;
    already_run(&one, &run_claim(HOUR, false)).await;
    already_run(&one, &run_claim(HOUR, true)).await;
}

#[tokio::test]
async fn a_run_that_never_ended_is_started_again_on_demand_once_its_lock_is_free() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let dead = take(&one, &run_claim(HOUR, true)).await;
    assert_eq!(contended(&other, &run_claim(HOUR, true), Queue::Leave).await.lease_left, Some(TTL));
    store.clock.advance(TTL);
    already_run(&other, &run_claim(HOUR, false)).await;
    let again = take(&other, &run_claim(HOUR, true)).await;
    assert!(token(&again) > token(&dead));
    contended(&one, &run_claim(HOUR, true), Queue::Leave).await;
    assert_eq!(one.end_run(&dead, SUCCEEDED).await.unwrap(), Released::NotOwner);
    assert_eq!(one.last_success(&key("a")).await.unwrap(), None, "the success of a hold that was lost");
    assert_eq!(other.end_run(&again, FAILED).await.unwrap(), Released::Released);
    already_run(&one, &run_claim(HOUR, true)).await;
}

#[tokio::test]
async fn an_earlier_periods_run_that_goes_on_is_contention() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let hold = take(&one, &run_claim(HOUR, false)).await;
    store.change(A_PERIOD_AGO).await;
    let next = run_claim(HOUR, false);
    assert_eq!(contended(&other, &next, Queue::Leave).await.lease_left, Some(TTL));
    one.end_run(&hold, SUCCEEDED).await.unwrap();
    take(&other, &next).await;
    already_run(&one, &run_claim(HOUR, false)).await;
}

#[tokio::test]
async fn the_last_success_is_kept_with_its_time_and_place() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    assert_eq!(one.last_success(&key("a")).await.unwrap(), None);
    let claim = run_claim(HOUR, false);
    let before = SystemTime::now() - Duration::from_millis(2);
    let hold = take(&one, &claim).await;
    let after = SystemTime::now() + Duration::from_millis(2);
    assert_eq!(one.last_success(&key("a")).await.unwrap(), None);
    one.end_run(&hold, SUCCEEDED).await.unwrap();
    let success = other.last_success(&key("a")).await.unwrap().unwrap();
    assert!(success.started >= before && success.started <= after, "{success:?}");
    assert_eq!((success.took, &success.note), (TOOK, &claim.note));
    store.change(A_PERIOD_AGO).await;
    let hold = take(&other, &run_claim(HOUR, false)).await;
    other.end_run(&hold, FAILED).await.unwrap();
    assert_eq!(one.last_success(&key("a")).await.unwrap().unwrap(), success);
    assert_eq!(one.last_success(&key("b")).await.unwrap(), None);
}

#[tokio::test]
async fn a_run_may_keep_its_lock_beyond_its_end() {
    let store = Store::new();
    let one = store.open().await;
    let hold = take(&one, &run_claim(HOUR, false)).await;
    assert_eq!(one.keep(&hold, Duration::from_secs(5), Some(SUCCEEDED)).await.unwrap(), Released::Released);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(one.last_success(&key("a")).await.unwrap().unwrap().took, TOOK);
    assert!(one.look(&key("a")).await.unwrap().note().cloned().is_some());
    already_run(&one, &run_claim(HOUR, true)).await;
    store.change(A_PERIOD_AGO).await;
    contended(&one, &run_claim(HOUR, false), Queue::Leave).await;
    store.clock.advance(Duration::from_secs(5));
    take(&one, &run_claim(HOUR, false)).await;
}

#[tokio::test]
async fn an_owner_that_asks_again_has_started_once() {
    let store = Store::new();
    let one = store.open().await;
    let claim = run_claim(HOUR, false);
    let first = take(&one, &claim).await;
    store.clock.advance(TTL * 2);
    let again = take(&one, &claim).await;
    assert!(token(&again) > token(&first), "its lease was over");
    assert!(matches!(confirm(&one, &again).await, Standing::Renewed(_)));
    let repeated = take(&one, &claim).await;
    assert_eq!(token(&repeated), token(&again));
    already_run(&one, &run_claim(HOUR, false)).await;
    one.end_run(&repeated, FAILED).await.unwrap();
    already_run(&one, &claim).await;
}

#[tokio::test]
async fn an_abandoned_start_gives_its_period_back_also_when_its_lease_is_over() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let late = run_claim(HOUR, false);
    take(&one, &late).await;
    store.clock.advance(TTL * 2);
    one.abandon(&late).await.unwrap();
    assert_eq!(store.rows().await, 0);
    let claim = run_claim(HOUR, false);
    take(&other, &claim).await;
    // Not the next one's.
    one.abandon(&late).await.unwrap();
    already_run(&one, &run_claim(HOUR, false)).await;
    other.abandon(&claim).await.unwrap();
    let hold = take(&one, &run_claim(HOUR, false)).await;
    one.end_run(&hold, FAILED).await.unwrap();
    one.abandon(&hold.claim).await.unwrap();
    already_run(&one, &run_claim(HOUR, true)).await;
}

#[tokio::test]
async fn periods_and_other_locks_under_one_key_see_each_other() {
    let store = Store::new();
    let one = store.open().await;
    let plain = take(&one, &mode_claim(Mode::Exclusive)).await;
    contended(&one, &run_claim(HOUR, false), Queue::Leave).await;
    one.release(&plain).await.unwrap();
    let reader = take(&one, &mode_claim(Mode::Read)).await;
    conflicts(&one, &run_claim(HOUR, false), Queue::Leave).await;
    one.release(&reader).await.unwrap();
    let run = take(&one, &run_claim(HOUR, false)).await;
    contended(&one, &mode_claim(Mode::Exclusive), Queue::Leave).await;
    conflicts(&one, &mode_claim(Mode::Write), Queue::Leave).await;
    assert!(token(&run) > token(&reader));
}

#[tokio::test]
async fn a_wrong_clock_of_a_client_moves_no_period() {
    let store = Store::on_real_time();
    let one = store.open().await;
    let ahead = Sqlite::open(&store.url(), &Clock::with_wall_skew(7_200_000)).await.unwrap();
    let behind = Sqlite::open(&store.url(), &Clock::with_wall_skew(-7_200_000)).await.unwrap();
    take(&one, &run_claim(HOUR, false)).await;
    already_run(&ahead, &run_claim(HOUR, false)).await;
    already_run(&behind, &run_claim(HOUR, false)).await;
}

#[tokio::test]
async fn one_of_many_callers_starts_each_short_period() {
    let store = Store::on_real_time();
    let period = Duration::from_millis(200);
    let (store, count) = (Arc::new(store), Arc::new(AtomicUsize::new(0)));
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let (store, one, count) = (store.clone(), store.open().await, count.clone());
        crowd.push(tokio::spawn(async move {
            let (end, mut started) = (store.clock.now().after(period * 8), Vec::new());
            // However slow the machine is, some are started.
            while store.clock.now() < end || count.load(Ordering::SeqCst) < 4 {
                if let Attempt::Acquired(hold) = one.try_acquire(&run_claim(period, false), Queue::Leave).await.unwrap()
                {
                    count.fetch_add(1, Ordering::SeqCst);
                    started.push(store.ask("SELECT boundary FROM dlock_runs").await);
                    one.end_run(&hold, SUCCEEDED).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..20))).await;
            }
            started
        }));
    }
    let mut started = Vec::new();
    for one in crowd {
        started.extend(one.await.unwrap());
    }
    started.sort_unstable();
    assert!(started.windows(2).all(|pair| pair[0] < pair[1]), "a period was started twice: {started:?}");
    assert!(started.iter().all(|boundary| boundary % 200_000_000 == 0));
}

#[tokio::test]
async fn a_dropped_start_leaves_no_transaction_and_no_lock() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    for _ in 0..100 {
        let claim = run_claim(Duration::from_millis(1), false);
        let pause = Duration::from_micros(fastrand::u64(0..400));
        drop_after(fastrand::usize(0..12), pause, one.try_acquire(&claim, Queue::Leave)).await;
        let writes = take(&other, &claim_in("other", Mode::Exclusive, TTL)).await;
        other.release(&writes).await.unwrap();
        one.abandon(&claim).await.unwrap();
    }
    assert_eq!(store.rows().await, 0);
}
