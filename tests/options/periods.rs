//! `min_hold`, `once_per` and `rerun`: effects that outlast a call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use dlock::{Error, ErrorKind, distributed_lock};
use futures::FutureExt;
use tokio::sync::Notify;

use crate::stores::{MS, Other, is_busy, is_free, on_each, soon};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

#[distributed_lock(key = "kept", min_hold = "20s", wait = "none", backend = store)]
async fn kept(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "kept:short", min_hold = "100ms", wait = "20s", backend = store)]
async fn kept_shortly(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "not:kept", wait = "none", backend = store)]
async fn not_kept(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_lock_is_kept_beyond_its_release_only_with_min_hold() {
    on_each(async |store| {
        kept(store).await.unwrap();
        is_busy(kept(store).await);
        for _ in 0..2 {
            kept_shortly(store).await.unwrap();
            not_kept(store).await.unwrap();
        }
        is_free(store, "not:kept").await;
    })
    .await;
}

#[distributed_lock(key = "period:<id>", once_per = "1w", wait = "none", backend = store)]
async fn once(store: &str, id: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "period:<id>", once_per = "1w", rerun = on_crash, wait = "20s", backend = store)]
async fn again(store: &str, id: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "period:<id>", wait = "none", backend = store)]
async fn at_will(store: &str, id: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_period_is_started_once_only_with_once_per() {
    on_each(async |store| {
        once(store, "run").await.unwrap();
        for end in [once(store, "run").await, again(store, "run").await] {
            assert_eq!(*end.unwrap_err().kind(), ErrorKind::AlreadyRun);
        }
        for _ in 0..2 {
            at_will(store, "run").await.unwrap();
        }
    })
    .await;
}

#[distributed_lock(key = "offset:<id>", once_per = "2w", wait = "none", backend = store)]
async fn at_the_boundary(store: &str, id: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "offset:<id>", once_per = "2w", offset = "1w", wait = "none", backend = store)]
async fn between_two(store: &str, id: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn an_offset_moves_the_boundaries_of_periods() {
    on_each(async |store| {
        // One of both belongs to the later boundary, and so has not run when the other one has.
        at_the_boundary(store, "first").await.unwrap();
        let second = between_two(store, "first").await;
        between_two(store, "second").await.unwrap();
        let first = at_the_boundary(store, "second").await;
        let (later, earlier) = if first.is_ok() { (first, second) } else { (second, first) };
        later.unwrap();
        assert_eq!(*earlier.unwrap_err().kind(), ErrorKind::AlreadyRun);
    })
    .await;
}

#[tokio::test]
async fn a_run_whose_process_died_counts_as_started_for_callers_without_rerun() {
    on_each(async |store| {
        let key = dlock::key_of(once(store, "dead")).unwrap();
        Other::dies_running(store, key.clone(), WEEK, 100 * MS).await;
        // Until its lease has ended. Then the lock is free for a caller without a period.
        soon(at_will_after(store, "dead")).await;
        for _ in 0..3 {
            assert_eq!(*once(store, "dead").await.unwrap_err().kind(), ErrorKind::AlreadyRun);
        }
        soon(again(store, "dead")).await.unwrap();
        is_free(store, key).await;
    })
    .await;
}

#[distributed_lock(key = "period:<id>", once_per = "1w", rerun = on_crash, wait = "20s", backend = store)]
async fn panics(store: &str, id: &str) -> Result<(), Error> {
    tokio::task::yield_now().await;
    panic!("on purpose")
}

#[distributed_lock(key = "period:<id>", once_per = "1w", rerun = on_crash, wait = "20s", backend = store)]
fn panics_sync(store: &str, id: &str) -> Result<(), Error> {
    panic!("on purpose")
}

#[distributed_lock(key = "period:<id>", once_per = "1w", rerun = on_crash, wait = "20s", backend = store)]
async fn goes_on(store: &str, id: &str, begun: &Notify) -> Result<(), Error> {
    begun.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn a_run_that_panicked_is_not_started_again_and_one_that_was_cancelled_is() {
    on_each(async |store| {
        assert!(AssertUnwindSafe(panics(store, "panicked")).catch_unwind().await.is_err());
        assert_eq!(*soon(again(store, "panicked")).await.unwrap_err().kind(), ErrorKind::AlreadyRun);
        assert!(catch_unwind(AssertUnwindSafe(|| panics_sync(store, "panicked:sync"))).is_err());
        assert_eq!(*soon(again(store, "panicked:sync")).await.unwrap_err().kind(), ErrorKind::AlreadyRun);
        let begun = Notify::new();
        tokio::select! {
            end = goes_on(store, "cancelled", &begun) => panic!("{end:?}"),
            () = begun.notified() => {}
        }
        // The lease has the default ttl, so no caller has waited for its end.
        soon(again(store, "cancelled")).await.unwrap();
        assert_eq!(*again(store, "cancelled").await.unwrap_err().kind(), ErrorKind::AlreadyRun);
    })
    .await;
}

/// Asks until it may.
async fn at_will_after(store: &str, id: &str) {
    while at_will(store, id).await.is_err() {
        tokio::time::sleep(10 * MS).await;
    }
}

#[tokio::test]
async fn a_run_whose_process_died_is_started_again_only_with_rerun() {
    on_each(async |store| {
        let key = dlock::key_of(once(store, "crashed")).unwrap();
        Other::dies_running(store, key, WEEK, 200 * MS).await;
        let run = async {
            loop {
                match again(store, "crashed").await {
                    // The winner may still be alive, for all that anybody knows.
                    Err(error) if *error.kind() == ErrorKind::AlreadyRun => tokio::time::sleep(20 * MS).await,
                    end => break end,
                }
                assert_eq!(*once(store, "crashed").await.unwrap_err().kind(), ErrorKind::AlreadyRun);
            }
        };
        soon(run).await.unwrap();
        for end in [once(store, "crashed").await, again(store, "crashed").await] {
            assert_eq!(*end.unwrap_err().kind(), ErrorKind::AlreadyRun);
        }
    })
    .await;
}
