//! Readers beside each other, a writer alone.

use std::time::Instant;

use dlock::backends::redis::Redis;
use dlock::{Clock, Mode};
use dlock_contract::{Backend, Keeps, Periods, Queue, Released};
use dlock_testkit::holds::take;
use dlock_testkit::{lateness, wait_until};

use super::bench::{Bench, LONG, MS, SECOND, ask, contended, granted, is_lost, silent, stand, took, until, wait};

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let readers = [
        take(&one, &bench.claim(Mode::Read, LONG)).await,
        take(&two, &bench.claim(Mode::Read, LONG)).await,
        take(&two, &bench.claim(Mode::Read, LONG)).await,
    ];
    assert!(readers[0].token < readers[1].token && readers[1].token < readers[2].token);
    assert!(readers.iter().all(|hold| hold.slot.is_none()));
    for reader in &readers {
        contended(&one, &bench.claim(Mode::Write, LONG)).await;
        assert_eq!(two.release(reader).await.unwrap(), Released::Released);
    }
    assert_eq!(bench.keys(), [""; 0]);
    let claim = bench.claim(Mode::Write, LONG);
    let writer = take(&one, &claim).await;
    assert!(writer.token > readers[2].token);
    assert!(take(&one, &claim).await.token > writer.token);
    contended(&two, &bench.claim(Mode::Write, LONG)).await;
    contended(&two, &bench.claim(Mode::Read, LONG)).await;
    assert_eq!(one.release(&writer).await.unwrap(), Released::Released);
    assert_eq!(one.release(&writer).await.unwrap(), Released::NotOwner);
    assert_eq!(bench.keys(), [""; 0]);
}

/// It cannot tell a writer that lives from a dead one, so it waits for the end of its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_without_the_right_to_count_listeners_do_not_overtake_a_writer() {
    let bench = Bench::own();
    let right = "ACL SETUSER lean reset on >pw ~* &* +@all -pubsub|numsub";
    let words: Vec<_> = right.split(' ').collect();
    let _: () = redis::cmd(words[0]).arg(&words[1..]).query(&mut bench.raw()).unwrap();
    let url = format!("redis://lean:pw@127.0.0.1:{}/", bench.port());
    let (lean, whole) = (Redis::connect(&url, &Clock::system()).await.unwrap(), bench.open().await);
    let reader = take(&lean, &bench.claim(Mode::Read, LONG)).await;
    let mut writer = stand(&whole, &bench.claim(Mode::Write, LONG)).await;
    contended(&lean, &bench.claim(Mode::Read, LONG)).await;
    whole.release(&reader).await.unwrap();
    granted(&mut writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_comes_while_a_writer_waits_stands_behind_it() {
    let bench = Bench::shared();
    let (one, two) = (bench.open().await, bench.open().await);
    let reader = take(&one, &bench.claim(Mode::Read, LONG)).await;
    let mut writer = stand(&two, &bench.claim(Mode::Write, LONG)).await;
    contended(&one, &bench.claim(Mode::Read, LONG)).await;
    let mut late = stand(&one, &bench.claim(Mode::Read, LONG)).await;
    let mut later = stand(&two, &bench.claim(Mode::Read, LONG)).await;
    let mut last = stand(&one, &bench.claim(Mode::Write, LONG)).await;
    silent(&mut late).await;
    one.release(&reader).await.unwrap();
    let writing = granted(&mut writer).await;
    silent(&mut late).await;
    // All readers at the head of the queue at once, and none of those behind the next writer.
    two.release(&writing).await.unwrap();
    let reading = (granted(&mut late).await, granted(&mut later).await);
    assert!(reading.0.token > writing.token && reading.1.token > reading.0.token);
    silent(&mut last).await;
    one.release(&reading.0).await.unwrap();
    silent(&mut last).await;
    two.release(&reading.1).await.unwrap();
    let writing = granted(&mut last).await;
    one.release(&writing).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_when_the_writer_between_them_gives_up() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let reader = take(&redis, &bench.claim(Mode::Read, LONG)).await;
    let writer = bench.claim(Mode::Write, LONG);
    let wake = stand(&redis, &writer).await;
    let mut late = stand(&redis, &bench.claim(Mode::Read, LONG)).await;
    drop(wake);
    redis.abandon(&writer).await.unwrap();
    let second = granted(&mut late).await;
    redis.release(&reader).await.unwrap();
    redis.release(&second).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_reader_ends_alone_and_by_itself() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    let dead = take(&one, &bench.claim(Mode::Read, SECOND)).await;
    let alive = take(&two, &bench.claim(Mode::Read, LONG)).await;
    drop(one);
    let before = Instant::now();
    let waiter = bench.claim(Mode::Write, LONG);
    let wake = stand(&two, &waiter).await;
    assert!(wake.lease_left.unwrap() > LONG / 2, "it asks when the dead reader ends");
    // Not asked by a renewal, which would prolong it.
    let is_alone = async || two.look(&bench.key).await.unwrap().holders.len() == 1;
    wait_until("the dead reader ends", is_alone).await.unwrap();
    assert!(!is_lost(&two, &alive).await && is_lost(&two, &dead).await);
    two.release(&alive).await.unwrap();
    drop(wake);
    wait(&two, &waiter, LONG).await;
    // It does not wait for the end of a lease that nobody has any more.
    lateness::assert_within(LONG * 3 / 4, before, "the grant");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_that_was_killed_keeps_readers_out_for_a_moment_only() {
    let bench = Bench::own();
    let (one, two) = (bench.open().await, bench.open().await);
    let reader = take(&one, &bench.claim(Mode::Read, LONG)).await;
    let _killed = stand(&two, &bench.claim(Mode::Write, LONG)).await;
    let waiter = bench.claim(Mode::Read, LONG);
    let wake = stand(&one, &waiter).await;
    drop(two);
    drop(wake);
    let before = Instant::now();
    let second = wait(&one, &waiter, LONG).await;
    // Much shorter than the reader's lease.
    lateness::assert_within(LONG / 2, before, "the grant");
    one.release(&reader).await.unwrap();
    one.release(&second).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
}

#[tokio::test]
async fn a_kept_reader_keeps_writers_out_and_readers_not() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let kept = take(&redis, &bench.claim(Mode::Read, LONG)).await;
    let before = Instant::now();
    redis.keep(&kept, 5 * SECOND, None).await.unwrap();
    let beside = take(&redis, &bench.claim(Mode::Read, LONG)).await;
    redis.release(&beside).await.unwrap();
    assert!(is_lost(&redis, &kept).await);
    let writer = wait(&redis, &bench.claim(Mode::Write, LONG), LONG).await;
    took(before, 5 * SECOND);
    redis.keep(&writer, 5 * SECOND, None).await.unwrap();
    contended(&redis, &bench.claim(Mode::Read, LONG)).await;
    wait(&redis, &bench.claim(Mode::Read, 10 * MS), LONG).await;
    bench.empty(SECOND).await;
}

#[tokio::test]
async fn the_holder_is_the_earliest_that_lives() {
    let bench = Bench::shared();
    let redis = bench.open().await;
    let noted = async |site: &str, ttl| {
        let mut claim = dlock_contract::Claim::new(bench.key.clone(), ttl, site).unwrap();
        claim.mode = Mode::Read;
        take(&redis, &std::sync::Arc::new(claim)).await
    };
    let site = async || redis.look(&bench.key).await.unwrap().note().cloned().unwrap().site().unwrap().to_owned();
    let first = noted("first", LONG).await;
    let _second = noted("second", 5 * SECOND).await;
    let third = noted("third", LONG).await;
    // Asking again does not make it a later one.
    take(&redis, &first.claim).await;
    assert_eq!(site().await, "first");
    redis.release(&first).await.unwrap();
    assert_eq!(site().await, "second");
    wait_until("the second one ends", async || site().await == "third").await.unwrap();
    redis.release(&third).await.unwrap();
    assert!(redis.look(&bench.key).await.unwrap().note().cloned().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_channels_waits_in_line_by_polling() {
    let bench = Bench::own();
    let redis = bench.open_polling().await;
    let reader = take(&redis, &bench.claim(Mode::Read, LONG)).await;
    let waiter = bench.claim(Mode::Write, LONG);
    let wake = stand(&redis, &waiter).await;
    assert!(wake.signal.is_none() && wake.ask_by.is_some());
    // It has a place all the same.
    contended(&redis, &bench.claim(Mode::Read, LONG)).await;
    let late = bench.claim(Mode::Read, LONG);
    assert!(ask(&redis, &late, until()).await.is_none());
    redis.release(&reader).await.unwrap();
    assert!(ask(&redis, &late, until()).await.is_none());
    let writer = wait(&redis, &waiter, LONG).await;
    redis.release(&writer).await.unwrap();
    let hold = wait(&redis, &late, LONG).await;
    redis.release(&hold).await.unwrap();
    assert_eq!(bench.keys(), [""; 0]);
    // In order, too, and once per period.
    let fair = ask(&redis, &bench.fair(LONG), until()).await.unwrap();
    assert!(ask(&redis, &bench.fair(LONG), until()).await.is_none());
    redis.release(&fair).await.unwrap();
    let run = take(&redis, &bench.run(MS, true, LONG)).await;
    redis.end_run(&run, dlock_contract::RunEnd::Succeeded { took: MS }).await.unwrap();
    assert!(redis.last_success(&bench.key).await.unwrap().is_some());
    assert!(ask(&redis, &bench.claim(Mode::Exclusive, LONG), Queue::Leave).await.is_some());
}
