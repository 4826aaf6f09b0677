//! Readers beside readers, a writer alone.

use std::time::Duration;

use dlock::{Backoff, Mode};
use dlock_contract::{Attempt, Backend, Queue, Released, Standing};
use dlock_testkit::holds::{claim_in, confirm, take, token};
use dlock_testkit::{drop_after, wait_until};

use crate::store::{Store, TTL, contended, mode_claim};

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let (first, second) = (take(&one, &mode_claim(Mode::Read)).await, take(&other, &mode_claim(Mode::Read)).await);
    assert_eq!((first.slot, second.slot), (None, None));
    assert!(token(&second) > token(&first));
    let writer = mode_claim(Mode::Write);
    contended(&other, &writer, Queue::Leave).await;
    one.release(&first).await.unwrap();
    contended(&other, &writer, Queue::Leave).await;
    other.release(&second).await.unwrap();
    let hold = take(&other, &writer).await;
    assert!(token(&hold) > token(&second));
    contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    contended(&one, &mode_claim(Mode::Write), Queue::Leave).await;
    assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn a_dead_reader_ends_alone_at_its_ttl() {
    let store = Store::new();
    let one = store.open().await;
    let dead = take(&one, &claim_in("a", Mode::Read, Duration::from_secs(5))).await;
    let alive = take(&one, &mode_claim(Mode::Read)).await;
    let writer = mode_claim(Mode::Write);
    assert_eq!(contended(&one, &writer, Queue::Leave).await.lease_left, Some(TTL));
    store.clock.advance(Duration::from_secs(5));
    assert_eq!(confirm(&one, &dead).await, Standing::Lost);
    assert!(matches!(confirm(&one, &alive).await, Standing::Renewed(_)));
    one.release(&alive).await.unwrap();
    take(&one, &writer).await;
}

#[tokio::test]
async fn a_reader_that_lapsed_while_a_writer_was_there_does_not_come_back() {
    let store = Store::new();
    let one = store.open().await;
    let reader = claim_in("a", Mode::Read, Duration::from_secs(5));
    let lapsed = take(&one, &reader).await;
    store.clock.advance(Duration::from_secs(5));
    let writer = take(&one, &mode_claim(Mode::Write)).await;
    contended(&one, &reader, Queue::Leave).await;
    one.release(&writer).await.unwrap();
    let again = take(&one, &reader).await;
    assert!(token(&again) > token(&writer) && token(&again) > token(&lapsed));
}

#[tokio::test]
async fn new_readers_wait_while_a_writer_waits() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let reader = take(&one, &mode_claim(Mode::Read)).await;
    let writer = mode_claim(Mode::Write);
    contended(&other, &writer, Queue::Leave).await;
    assert_eq!(store.ask("SELECT count(*) FROM dlock_writers").await, 0, "it does not wait");
    let until = Queue::until(store.clock.now().after(TTL));
    contended(&other, &writer, until).await;
    contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    assert!(matches!(confirm(&one, &reader).await, Standing::Renewed(_)), "who is in stays in");
    let again = take(&one, &reader.claim).await;
    assert_eq!(token(&again), token(&reader), "who is in may ask again");
    store.clock.advance(Duration::from_millis(900));
    contended(&other, &writer, until).await;
    store.clock.advance(Duration::from_millis(900));
    contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    one.release(&reader).await.unwrap();
    contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    let hold = take(&other, &writer).await;
    assert_eq!(store.ask("SELECT count(*) FROM dlock_writers").await, 0, "it waits no more");
    other.release(&hold).await.unwrap();
    take(&one, &mode_claim(Mode::Read)).await;
}

/// One that asks again only every ten seconds would otherwise be overtaken in each of its pauses.
#[tokio::test]
async fn a_waiting_writer_keeps_readers_out_for_its_stated_pause_but_not_beyond_its_ttl() {
    let store = Store::new();
    let one = store.open().await;
    let second = Duration::from_secs(1);
    for (to, held_up) in [(10 * second, 11 * second), (100 * TTL, TTL + second)] {
        let reader = take(&one, &mode_claim(Mode::Read)).await;
        let queue = Queue::Join { until: store.clock.now().after(TTL), asks_again_within: Some(to) };
        contended(&one, &mode_claim(Mode::Write), queue).await;
        one.release(&reader).await.unwrap();
        store.clock.advance(held_up - second / 10);
        contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
        store.clock.advance(second / 10);
        let next = take(&one, &mode_claim(Mode::Read)).await;
        one.release(&next).await.unwrap();
    }
}

#[tokio::test]
async fn the_pause_that_a_caller_states_reaches_the_file() {
    let store = Store::on_real_time();
    let registry = dlock::Registry::new();
    registry.connect("main", &store.url()).await.unwrap();
    registry.set_default("main").unwrap();
    let _reader = registry.lock("a").mode(Mode::Read).acquire().await.unwrap();
    let backoff = Backoff::new(Duration::from_secs(7), Duration::from_secs(7));
    let waits = tokio::spawn(registry.lock("a").mode(Mode::Write).backoff(backoff).acquire());
    let mark = "SELECT coalesce(max(expires - since), 0) / 1000000000 FROM dlock_writers";
    while store.ask(mark).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(store.ask(mark).await, 8);
    waits.abort();
}

#[tokio::test]
async fn a_writer_that_died_or_gave_up_waits_no_more() {
    let store = Store::new();
    let one = store.open().await;
    let reader = take(&one, &mode_claim(Mode::Read)).await;
    let until = Queue::until(store.clock.now().after(TTL));
    let gives_up = mode_claim(Mode::Write);
    contended(&one, &gives_up, until).await;
    one.abandon(&gives_up).await.unwrap();
    let second = take(&one, &mode_claim(Mode::Read)).await;
    contended(&one, &mode_claim(Mode::Write), until).await;
    let wake = contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    store.clock.advance(wake.lease_left.unwrap());
    let third = take(&one, &mode_claim(Mode::Read)).await;
    for hold in [reader, second, third] {
        one.release(&hold).await.unwrap();
    }
    // The dead one's mark goes with the next one's.
    let reader = take(&one, &mode_claim(Mode::Read)).await;
    let last = mode_claim(Mode::Write);
    contended(&one, &last, until).await;
    assert_eq!(store.ask("SELECT count(*) FROM dlock_writers").await, 1);
    one.release(&reader).await.unwrap();
    one.abandon(&last).await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn a_writer_that_waits_when_another_family_comes_leaves_no_mark() {
    let store = Store::new();
    let one = store.open().await;
    let reader = take(&one, &mode_claim(Mode::Read)).await;
    let until = Queue::until(store.clock.now().after(TTL));
    let writer = mode_claim(Mode::Write);
    contended(&one, &writer, until).await;
    one.release(&reader).await.unwrap();
    let other = take(&one, &mode_claim(Mode::Exclusive)).await;
    crate::store::conflicts(&one, &writer, until).await;
    one.release(&other).await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn writers_are_not_starved_by_readers_that_overlap() {
    let store = Store::on_real_time();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut readers = Vec::new();
    for _ in 0..4 {
        let (one, stop) = (store.open().await, stop.clone());
        readers.push(tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                if let Attempt::Acquired(hold) = one.try_acquire(&mode_claim(Mode::Read), Queue::Leave).await.unwrap() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    one.release(&hold).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    wait_until("readers hold the lock", async || store.rows().await > 0).await.unwrap();
    let (one, writer) = (store.open().await, mode_claim(Mode::Write));
    let started = std::time::Instant::now();
    let hold = loop {
        match one.try_acquire(&writer, Queue::until(store.clock.now().after(TTL))).await.unwrap() {
            Attempt::Acquired(hold) => break hold,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        assert!(started.elapsed() < Duration::from_secs(20), "the writer starves");
    };
    one.release(&hold).await.unwrap();
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn a_dropped_attempt_of_any_mode_leaves_nothing_after_its_abandon() {
    let store = Store::on_real_time();
    let (one, other) = (store.open().await, store.open().await);
    let until = Queue::until(store.clock.now().after(TTL));
    let blocker = take(&other, &mode_claim(Mode::Read)).await;
    for round in 0..150 {
        let mode = [Mode::Read, Mode::Write][round % 2];
        let claim = mode_claim(mode);
        let pause = Duration::from_micros(fastrand::u64(0..400));
        drop_after(fastrand::usize(0..8), pause, one.try_acquire(&claim, until)).await;
        // The other one could write nothing if a transaction were open.
        let writes = take(&other, &claim_in("other", Mode::Exclusive, TTL)).await;
        other.release(&writes).await.unwrap();
        one.abandon(&claim).await.unwrap();
        assert_eq!(store.rows().await, 2, "round {round}");
    }
    other.release(&blocker).await.unwrap();
    assert_eq!(store.rows().await, 0);
}
