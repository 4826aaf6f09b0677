//! Processes that cannot get pushes: they join the queue too, and poll.

use std::collections::BTreeSet;
use std::sync::Arc;

use dlock::Mode;
use dlock::backends::redis::Redis;
use dlock_contract::{Backend, Claim};
use dlock_testkit::holds::take;
use dlock_testkit::wait_until;
use redis::Commands;

use super::bench::{Bench, LONG, permits, stand, wait};

async fn has_its_turn(redis: &Redis, claim: &Arc<Claim>) {
    let hold = wait(redis, claim, LONG).await;
    redis.release(&hold).await.unwrap();
}

/// Its abandon was given up, or its request came after it. Its neighbours ask all the while, and are of the same
/// process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_of_a_waiter_that_left_silently_ends_although_its_process_polls() {
    for (held, left, waits) in [
        (permits(1), permits(1), permits(1)),
        (Mode::Write, Mode::Write, Mode::Read),
        (Mode::Read, Mode::Write, Mode::Read),
    ] {
        let bench = Bench::own();
        let (pushed, polling) = (bench.open().await, bench.open_polling().await);
        let hold = take(&pushed, &bench.claim(held, LONG * 6)).await;
        drop(stand(&polling, &bench.claim(left, LONG)).await);
        let (neighbour, stranger) = (bench.claim(waits, LONG), bench.claim(waits, LONG));
        drop((stand(&polling, &neighbour).await, stand(&pushed, &stranger).await));
        let is_in_the_way = held == left;
        if is_in_the_way {
            pushed.release(&hold).await.unwrap();
        }
        tokio::join!(has_its_turn(&polling, &neighbour), has_its_turn(&pushed, &stranger));
        if !is_in_the_way {
            pushed.release(&hold).await.unwrap();
        }
        assert_eq!(bench.keys(), [""; 0], "{left:?}");
    }
}

fn owners(claims: &[Arc<Claim>]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.owner.to_hex().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_polling_waiter_ends_with_its_place() {
    let bench = Bench::own();
    let (pushed, polling) = (bench.open().await, bench.open_polling().await);
    let known = || -> BTreeSet<String> { bench.raw().hkeys(bench.name() + ":p").unwrap() };
    let hold = take(&pushed, &bench.claim(permits(1), LONG * 6)).await;
    let claims: Vec<_> = (0..3).map(|_| bench.claim(permits(1), LONG * 6)).collect();
    for claim in &claims {
        drop(stand(&polling, claim).await);
    }
    assert_eq!(known(), owners(&claims));
    // It gives up.
    polling.abandon(&claims[0]).await.unwrap();
    assert_eq!(known(), owners(&claims[1..]));
    // It has its turn.
    pushed.release(&hold).await.unwrap();
    let hold = wait(&polling, &claims[1], LONG).await;
    assert_eq!(known(), owners(&claims[2..]));
    // It can be pushed to from now on.
    bench.acl("dlock allchannels +pubsub");
    let hears = async || stand(&polling, &claims[2]).await.signal.is_some();
    wait_until("pushes arrive", hears).await.unwrap();
    assert!(known().is_disjoint(&owners(&claims)));
    polling.release(&hold).await.unwrap();
    has_its_turn(&polling, &claims[2]).await;
    assert_eq!(bench.keys(), [""; 0]);
}
