//! Functions that are not async, on each store, from threads with and without a runtime.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use dlock::{Error, ErrorKind, LossCause, Outcome, distributed_lock};

use crate::stores::{MS, Other, STORES, installed, is_busy, on_each};

#[distributed_lock(key = "sync", wait = "20s", guard = held, fence = token, backend = store)]
fn alone(store: &str, inside: &AtomicU32) -> Result<u64, Error> {
    assert_eq!(inside.fetch_add(1, SeqCst), 0, "on {store}");
    held.check()?;
    thread::sleep(MS);
    inside.fetch_sub(1, SeqCst);
    Ok(token.get())
}

#[distributed_lock(key = "sync:busy:<id>", wait = "none", backend = store)]
fn fails(store: &str, id: u8) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "sync:busy:<id>", wait = "1s", on_busy = skip, backend = store)]
fn skips(store: &str, id: u8) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

#[distributed_lock(key = "sync:busy:<id>", wait = "none", on_busy = call(instead), backend = store)]
fn calls(store: &str, id: u8) -> Result<Option<u8>, Error> {
    Ok(Some(1))
}

fn instead(_: &str, _: u8) -> Result<Option<u8>, Error> {
    Ok(Some(2))
}

/// Nothing can stop it, whatever `on_lost` is.
#[distributed_lock(key = "sync:lost", ttl = "500ms", renew = false, backend = store)]
fn outlasts_its_lock(store: &str) -> Outcome<u8> {
    thread::sleep(800 * MS);
    1.into()
}

#[distributed_lock(keys = ["sync:<a>", "sync:<b>"], guard = held, backend = store)]
fn several(store: &str, a: u8, b: u8) -> Result<(usize, Option<u8>), Error> {
    Ok((held.len(), nested(store, a)?))
}

#[distributed_lock(key = "sync:<a>", reentrant, backend = store)]
fn nested(store: &str, a: u8) -> Result<Option<u8>, Error> {
    Ok(Some(a))
}

#[test]
fn one_thread_at_a_time_runs_a_locked_plain_function() {
    installed();
    let inside = STORES.map(|_| AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            for (store, inside) in STORES.into_iter().zip(&inside) {
                scope.spawn(|| {
                    let tokens: Vec<_> = (0..10).map(|_| alone(store, inside).unwrap()).collect();
                    assert!(tokens.is_sorted());
                });
            }
        }
    });
}

fn every_form(store: &'static str, id: u8) {
    assert_eq!(several(store, id, id + 1).unwrap(), (2, Some(id)));
    for end in [fails(store, id), skips(store, id), calls(store, id)] {
        assert_eq!(end.unwrap(), Some(1));
    }
}

#[test]
fn a_locked_plain_function_runs_without_a_runtime() {
    installed();
    STORES.into_iter().for_each(|store| every_form(store, 10));
}

#[tokio::test]
async fn a_locked_plain_function_runs_on_the_thread_of_a_runtime() {
    on_each(async |store| every_form(store, 20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_plain_function_runs_on_a_worker_of_a_runtime() {
    on_each(async |store| tokio::spawn(async move { every_form(store, 30) }).await.unwrap()).await;
}

#[tokio::test]
async fn a_locked_plain_function_is_busy_while_another_owner_holds_the_lock() {
    on_each(async |store| {
        let other = Other::holds(store, dlock::key_of_blocking(|| fails(store, 0)).unwrap()).await;
        is_busy(fails(store, 0));
        assert_eq!(skips(store, 0).unwrap(), None);
        assert_eq!(calls(store, 0).unwrap(), Some(2));
        other.releases().await;
    })
    .await;
}

#[test]
fn a_plain_body_that_outlasts_its_lock_ends_and_its_caller_hears_of_the_loss() {
    installed();
    for store in STORES {
        let outcome = outlasts_its_lock(store);
        let Outcome::Lost(Some(1), error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(*error.kind(), ErrorKind::Lost(LossCause::Deadline));
    }
}
