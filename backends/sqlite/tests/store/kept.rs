//! Locks that stay taken for a while after their end.

use std::time::Duration;

use dlock::Mode;
use dlock_contract::{Backend, Keeps, Queue, Released, Standing};
use dlock_testkit::holds::{claim_in, confirm, take, token};

use crate::store::{Store, TTL, conflicts, contended, mode_claim, permits};

const KEEP: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_nanos(1);

#[tokio::test]
async fn a_kept_lock_has_no_holder_and_stays_taken_by_the_stores_clock() {
    let store = Store::new();
    let (one, other) = (store.open().await, store.open().await);
    let first = mode_claim(Mode::Exclusive);
    let hold = take(&one, &first).await;
    assert_eq!(one.keep(&hold, KEEP, None).await.unwrap(), Released::Released);
    assert_eq!(confirm(&one, &hold).await, Standing::Lost);
    assert_eq!(one.release(&hold).await.unwrap(), Released::NotOwner);
    assert_eq!(one.keep(&hold, KEEP, None).await.unwrap(), Released::NotOwner);
    one.abandon(&first).await.unwrap();
    assert_eq!(other.look(&first.key).await.unwrap().note().cloned().unwrap(), first.note);
    let next = mode_claim(Mode::Exclusive);
    assert_eq!(contended(&other, &next, Queue::Leave).await.lease_left, Some(KEEP));
    contended(&one, &first, Queue::Leave).await;
    conflicts(&other, &mode_claim(Mode::Read), Queue::Leave).await;
    store.clock.advance(KEEP - MOMENT);
    contended(&other, &next, Queue::Leave).await;
    store.clock.advance(MOMENT);
    assert_eq!(other.look(&first.key).await.unwrap().note().cloned(), None);
    let hold = take(&other, &next).await;
    other.release(&hold).await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn an_end_that_keeps_the_lock_for_no_time_is_a_release() {
    let store = Store::new();
    let one = store.open().await;
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(2)] {
        let hold = take(&one, &mode_claim(mode)).await;
        assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
        assert_eq!(store.rows().await, 0);
        assert_eq!(one.keep(&hold, KEEP, None).await.unwrap(), Released::NotOwner);
        assert_eq!(store.rows().await, 0, "the end of a hold that was over has kept something");
    }
}

#[tokio::test]
async fn of_several_permits_only_the_kept_one_stays_taken() {
    let store = Store::new();
    let one = store.open().await;
    let (held, kept) = (take(&one, &mode_claim(permits(2))).await, take(&one, &mode_claim(permits(2))).await);
    one.keep(&kept, KEEP, None).await.unwrap();
    assert_eq!(confirm(&one, &kept).await, Standing::Lost);
    assert_eq!(one.release(&kept).await.unwrap(), Released::NotOwner);
    contended(&one, &mode_claim(permits(2)), Queue::Leave).await;
    one.release(&held).await.unwrap();
    assert_eq!(take(&one, &mode_claim(permits(2))).await.slot, Some(0), "the slot that was not kept");
    store.clock.advance(KEEP);
    assert_eq!(take(&one, &mode_claim(permits(2))).await.slot, Some(1));
}

#[tokio::test]
async fn a_kept_reader_keeps_writers_out_and_lets_readers_in() {
    let store = Store::new();
    let one = store.open().await;
    let first = mode_claim(Mode::Read);
    let hold = take(&one, &first).await;
    one.keep(&hold, KEEP, None).await.unwrap();
    let second = mode_claim(Mode::Read);
    let beside = take(&one, &second).await;
    assert_eq!(one.look(&first.key).await.unwrap().note().cloned().unwrap(), first.note, "the one that came first");
    one.release(&beside).await.unwrap();
    assert_eq!(contended(&one, &mode_claim(Mode::Write), Queue::Leave).await.lease_left, Some(KEEP));
    conflicts(&one, &mode_claim(Mode::Exclusive), Queue::Leave).await;
    store.clock.advance(KEEP);
    let writer = take(&one, &mode_claim(Mode::Write)).await;
    assert!(token(&writer) > token(&beside));
    one.keep(&writer, KEEP, None).await.unwrap();
    contended(&one, &mode_claim(Mode::Read), Queue::Leave).await;
    store.clock.advance(KEEP);
    take(&one, &mode_claim(Mode::Exclusive)).await;
    assert_eq!(store.ask("SELECT count(*) FROM dlock_shares").await, 0);
}

#[tokio::test]
async fn a_dead_share_is_not_kept_in_a_place_that_others_have() {
    let store = Store::new();
    let one = store.open().await;
    let dead = take(&one, &claim_in("a", Mode::Read, Duration::from_secs(1))).await;
    store.clock.advance(Duration::from_secs(1));
    let writer = take(&one, &mode_claim(Mode::Write)).await;
    assert_eq!(one.keep(&dead, KEEP, None).await.unwrap(), Released::NotOwner);
    assert_eq!(one.release(&dead).await.unwrap(), Released::NotOwner);
    one.release(&writer).await.unwrap();
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn kept_locks_that_nobody_asks_for_again_are_swept() {
    let store = Store::new();
    let one = store.open().await;
    for number in 0..50 {
        for mode in [Mode::Exclusive, permits(3), Mode::Read] {
            let hold = take(&one, &claim_in(&format!("{mode:?} {number}"), mode, TTL)).await;
            one.keep(&hold, KEEP, None).await.unwrap();
        }
        store.clock.advance(Duration::from_secs(1));
    }
    let rows = store.rows().await;
    assert!(rows <= 5 * (1 + 2 + 2) + 5, "{rows} rows are left");
}

#[tokio::test]
async fn kept_locks_are_swept_by_the_next_request_of_any_kind() {
    let store = Store::new();
    let one = store.open().await;
    for number in 0..600 {
        let hold = take(&one, &claim_in(&format!("kept {number}"), Mode::Exclusive, TTL)).await;
        one.keep(&hold, KEEP, None).await.unwrap();
    }
    store.clock.advance(TTL);
    // An ordinary cycle of another key; a bounded number of rows goes after each request.
    for _ in 0..3 {
        let hold = take(&one, &mode_claim(Mode::Exclusive)).await;
        one.release(&hold).await.unwrap();
    }
    let rows = store.rows().await;
    assert_eq!(rows, 0, "{rows} rows are left");
}

#[tokio::test]
async fn locks_from_before_a_restart_of_the_host_leave_no_row() {
    let store = Store::new();
    let one = store.open().await;
    for mode in [Mode::Exclusive, permits(3), Mode::Read] {
        take(&one, &claim_in(&format!("{mode:?}"), mode, TTL)).await;
    }
    assert!(store.rows().await > 0);
    one.close().await;
    for of_another_boot in [
        "UPDATE dlock_shares SET boot = 'another'",
        "UPDATE dlock_locks SET boot = 'another'",
        "UPDATE dlock_fence SET boot = 'another'",
    ] {
        store.change(of_another_boot).await;
    }
    drop(store.open().await);
    assert_eq!(store.rows().await, 0);
}
