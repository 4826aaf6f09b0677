//! `wait`, `max_waiters` and `fair`: calls that come while another owner holds the lock.

use std::sync::Mutex;
use std::time::Duration;

use dlock::{Error, ErrorKind, Wait, distributed_lock};

use crate::stores::{MS, Other, answered, on_each, soon, until_in_line, until_waiting};

#[distributed_lock(key = "wait", wait = "none", backend = store)]
async fn none(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait", wait = none, backend = store)]
async fn bare_none(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait:long", wait = forever, backend = store)]
async fn bare_forever(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait", wait = "1s", backend = store)]
async fn short(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait", wait = limit, backend = store)]
async fn given(store: &str, limit: Wait) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait", wait = limit * 2, backend = store)]
async fn doubled(store: &str, limit: Duration) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait:long", wait = "forever", backend = store)]
async fn forever(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "wait:long", backend = store)]
async fn default(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn a_wait_ends_after_the_stated_time() {
    on_each(async |store| {
        let other = Other::holds(store, "wait").await;
        for (end, kind) in [
            (none(store).await, ErrorKind::Busy),
            (bare_none(store).await, ErrorKind::Busy),
            (given(store, Wait::None).await, ErrorKind::Busy),
            (doubled(store, Duration::ZERO).await, ErrorKind::Busy),
            (answered(async || short(store).await).await, ErrorKind::WaitTimeout),
            (answered(async || given(store, Wait::UpTo(1000 * MS)).await).await, ErrorKind::WaitTimeout),
            (answered(async || doubled(store, 500 * MS).await).await, ErrorKind::WaitTimeout),
        ] {
            assert_eq!(*end.unwrap_err().kind(), kind);
        }
        other.releases().await;
        none(store).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_waiter_gets_the_lock_after_its_release_also_by_default() {
    on_each(async |store| {
        let other = Other::holds(store, "wait:long").await;
        let release = async {
            until_waiting(store, "wait:long", 3).await;
            other.releases().await;
        };
        let all = async { tokio::join!(forever(store), bare_forever(store), default(store), release) };
        let (one, two, three, ()) = soon(all).await;
        for end in [one, two, three] {
            end.unwrap();
        }
    })
    .await;
}

#[distributed_lock(key = "queue", wait = "20s", max_waiters = 1, backend = store)]
async fn short_queue(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "queue:long", wait = "20s", backend = store)]
async fn long_queue(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn one_waiter_too_many_fails_at_once_if_max_waiters_is_set() {
    on_each(async |store| {
        let other = Other::holds(store, "queue").await;
        let mut waiting = Box::pin(short_queue(store));
        let full = async {
            until_waiting(store, "queue", 1).await;
            let error = short_queue(store).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::QueueFull { max: 1 });
            assert!(error.is_contention());
            other.releases().await;
        };
        let (one, ()) = soon(async { tokio::join!(&mut waiting, full) }).await;
        one.unwrap();
    })
    .await;
}

#[tokio::test]
async fn many_callers_may_wait_by_default() {
    on_each(async |store| {
        let other = Other::holds(store, "queue:long").await;
        let waiting = futures::future::join_all((0..100).map(|_| long_queue(store)));
        let release = async {
            until_waiting(store, "queue:long", 100).await;
            other.releases().await;
        };
        let (ends, ()) = soon(async { tokio::join!(waiting, release) }).await;
        ends.into_iter().for_each(|end| end.unwrap());
    })
    .await;
}

#[distributed_lock(key = "fair", fair, wait = "20s", backend = store)]
async fn in_order(store: &str, n: u8, order: &Mutex<Vec<u8>>) -> Result<(), Error> {
    order.lock().unwrap().push(n);
    Ok(())
}

#[distributed_lock(key = "fair", wait = "20s", backend = store)]
async fn in_any_order(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn waiters_are_served_in_order_if_the_store_can() {
    on_each(async |store| {
        let order = Mutex::default();
        let other = Other::holds(store, "fair").await;
        let waiting = futures::future::join_all((0..9).map(|n| in_order(store, n, &order)));
        let release = async {
            if store != "sqlite" {
                until_in_line(store, "fair", 9).await;
            }
            other.releases().await;
        };
        let (ends, ()) = soon(async { tokio::join!(waiting, release) }).await;
        if store == "sqlite" {
            let refused = |end: &Result<(), Error>| {
                matches!(end, Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }))
            };
            assert!(ends.iter().all(refused) && order.lock().unwrap().is_empty());
        } else {
            ends.into_iter().for_each(|end| end.unwrap());
            assert!(order.lock().unwrap().is_sorted(), "{order:?}");
        }
        in_any_order(store).await.unwrap();
    })
    .await;
}
