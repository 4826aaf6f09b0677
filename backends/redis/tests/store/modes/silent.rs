//! A process that was handed a lock and says nothing costs one short grant, however many places it has.

use std::sync::Arc;

use dlock::backends::redis::Redis;
use dlock::{Clock, Mode};
use dlock_contract::{Attempt, Backend, Claim, Exchange, Keeps, Released, Wake};
use dlock_testkit::holds::take;

use super::bench::{Bench, LONG, ask, granted, stand, until};

/// As if the lease of the current hold were over.
fn runs_out(bench: &Bench) {
    let ended: u64 = redis::cmd("DEL").arg(bench.name()).query(&mut bench.raw()).unwrap();
    assert_eq!(ended, 1);
}

/// A process that got a lock handed over and was silent until it expired, with two more places before the last one of
/// the queue.
struct Silent {
    redis: Redis,
    claims: [Arc<Claim>; 2],
    _places: [Wake; 2],
}

impl Silent {
    /// And whose place is the last one: `one`'s.
    async fn before(one: &Redis, bench: &Bench) -> (Self, Arc<Claim>) {
        let redis = bench.open().await;
        let held = take(one, &bench.fair(LONG)).await;
        let (claims, last) = ([bench.fair_unrenewed(), bench.fair_unrenewed()], bench.fair_unrenewed());
        let places = [stand(&redis, &claims[0]).await, stand(&redis, &claims[1]).await];
        drop(stand(one, &last).await);
        assert_eq!(one.release(&held).await.unwrap(), Released::Released);
        runs_out(bench);
        (Self { redis, claims, _places: places }, last)
    }

    async fn leaves(self) {
        for claim in &self.claims {
            self.redis.abandon(claim).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_in_between_gives_the_other_places_of_a_silent_process_no_second_grant() {
    let bench = Bench::own();
    let one = bench.open().await;
    let (silent, last) = Silent::before(&one, &bench).await;
    let newcomer = take(&one, &bench.claim(Mode::Exclusive, LONG)).await;
    let mut wake = stand(&one, &last).await;
    assert_eq!(one.release(&newcomer).await.unwrap(), Released::Released);
    let hold = granted(&mut wake).await;
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    silent.leaves().await;
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_whose_key_is_kept_beyond_its_hold_gives_a_silent_process_no_second_grant() {
    let bench = Bench::own();
    let one = bench.open().await;
    let (silent, last) = Silent::before(&one, &bench).await;
    // No caller asks while it holds the lock.
    let newcomer = take(&one, &bench.claim(Mode::Exclusive, LONG)).await;
    assert_eq!(one.keep(&newcomer, LONG, None).await.unwrap(), Released::Released);
    runs_out(&bench);
    let hold = ask(&one, &last, until()).await.expect("nobody else is tried");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    silent.leaves().await;
    assert_eq!(bench.keys(), [""; 0]);
}

/// Its release was its last word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_fell_silent_after_a_hand_over_costs_no_second_grant() {
    let bench = Bench::own();
    let (one, silent) = (bench.open().await, bench.open().await);
    let held = take(&silent, &bench.fair(LONG)).await;
    let (first, second, last) = (bench.unrenewed(Mode::Exclusive), bench.fair(LONG), bench.fair(LONG));
    let places = (stand(&silent, &first).await, stand(&silent, &second).await);
    drop(stand(&one, &last).await);
    let by = Clock::system().now().after(LONG);
    let (released, asked) = silent.release_to(&held, &first, by).await.unwrap();
    assert_eq!(released, Released::Released);
    assert!(matches!(asked, Some(Attempt::Acquired(_))), "{asked:?}");
    runs_out(&bench);
    let hold = ask(&one, &last, until()).await.expect("nobody else is tried");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    drop(places);
    for claim in [&first, &second] {
        silent.abandon(claim).await.unwrap();
    }
    assert_eq!(bench.keys(), [""; 0]);
}
