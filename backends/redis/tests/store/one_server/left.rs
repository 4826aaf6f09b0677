//! A failed attempt may leave something in the server, and only the engine abandons it.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dlock::backends::redis::Redis;
use dlock::{Backoff, Clock, Error, ErrorKind, Key, Registry, Retry};
use dlock_contract::{Backend, Queue};
use dlock_testkit::holds::{claim, take};
use dlock_testkit::servers::Instance;
use dlock_testkit::{Mode, Proxy, block_until, wait_until};
use futures::FutureExt;
use tokio::runtime::{Builder, Runtime};

use super::database::{Database, SECOND};
use crate::names::{self, FENCE, K};

/// No lock of these tests ends by itself.
const LONG: Duration = Duration::from_secs(600);

/// Loses the answer to an attempt that has won this lock. Later requests pass.
async fn unheard<T>(
    server: &Database<Instance>,
    proxy: &Proxy,
    key: &str,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Error {
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: LONG });
    let (answer, ()) = tokio::join!(attempt, async {
        wait_until("it has won", async || server.keys().iter().any(|name| name == key)).await.unwrap();
        proxy.set(Mode::Pass);
        proxy.cut();
    });
    answer.err().expect("the answer was heard")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_grant_was_not_heard_stays_until_it_is_abandoned() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let redis = Redis::connect(&url, &Clock::system()).await.unwrap();
    let lost = claim("k", LONG);
    let error = unheard(&server, &proxy, K, redis.try_acquire(&lost, Queue::Leave)).await;
    assert!(*error.kind() == ErrorKind::Outage && error.is_retryable(), "{error}");
    // Any request that the store would send by itself has left before this.
    take(&redis, &claim("later", LONG)).await;
    assert_eq!(server.keys(), [FENCE, K, &names::of_text("later")]);
    redis.abandon(&lost).await.unwrap();
    assert_eq!(server.keys(), [FENCE, &names::of_text("later")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_grant_was_not_heard_is_released_by_the_engine() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let registry = Registry::new();
    registry.connect("redis", &url).await.unwrap();
    registry.set_default("redis").unwrap();
    let none = Retry { times: 0, backoff: Some(Backoff::new(SECOND, SECOND)) };
    let attempt = registry.lock(Key::text("k")).ttl(LONG).retry(none).try_acquire();
    let error = unheard(&server, &proxy, &names::of_default(Key::text("k")), attempt).await;
    assert_eq!(*error.kind(), ErrorKind::Outage, "{error}");
    wait_until("nothing is left", async || server.keys() == [FENCE]).await.unwrap();
    registry.shutdown(SECOND).await;
}

/// Tokio lets a task without budget send nothing: what it gave up must not be undone before it is asked for.
#[tokio::test]
async fn an_abandon_does_not_overtake_the_attempt_of_a_task_without_budget() {
    let server = Database::own(&[]);
    let registry = Registry::new();
    registry.connect("redis", &server.url).await.unwrap();
    registry.set_default("redis").unwrap();
    registry.lock("first").acquire().await.unwrap().release().await.unwrap();
    poll_fn(|cx| {
        let mut calls = ["a", "b"].map(|key| Box::pin(registry.lock(key).ttl(LONG).acquire()));
        // The first is sent at once; the second gathers what leaves next, and lets it leave when it is polled again.
        assert!(calls.iter_mut().all(|call| call.as_mut().poll(cx).is_pending()));
        while tokio::task::consume_budget().now_or_never().is_some() {}
        assert!(calls[1].as_mut().poll(cx).is_pending());
        drop(calls);
        // Our thread gives both up meanwhile; a shorter time would only hide the fault.
        std::thread::sleep(Duration::from_millis(300));
        Poll::Ready(())
    })
    .await;
    registry.shutdown(SECOND).await;
    assert_eq!(server.keys(), [FENCE]);
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The request of one runtime is on its way still when it is undone from another one, as by dlock's own thread.
#[test]
fn an_abandon_from_another_runtime_keeps_its_place_behind_the_request_that_it_undoes() {
    let server = Database::own(&[]);
    let (proxy, url) = Proxy::in_front_of(&server.url).unwrap();
    let (asking, undoing) = (runtime(), runtime());
    let redis = Arc::new(asking.block_on(Redis::connect(&url, &Clock::system())).unwrap());
    // Both have a connection that they could use at once.
    for runtime in [&asking, &undoing] {
        runtime.block_on(async {
            let hold = take(&*redis, &claim("warm", LONG)).await;
            redis.release(&hold).await.unwrap();
        });
    }
    proxy.keep();
    let lost = asking.block_on(async { claim("k", LONG) });
    let (store, asked) = (redis.clone(), lost.clone());
    asking.spawn(async move { store.try_acquire(&asked, Queue::Leave).await });
    block_until("the request has left", || proxy.kept().iter().any(|kept| *kept > 0)).unwrap();
    let before = proxy.kept();
    let way = before.iter().position(|kept| *kept > 0).unwrap();
    let abandoned = undoing.spawn(async move { redis.abandon(&lost).await });
    block_until("the abandon has left", || proxy.kept() != before).unwrap();
    assert!(proxy.kept()[way] > before[way], "it left over another connection: {before:?} {:?}", proxy.kept());
    proxy.set(Mode::Pass);
    proxy.deliver(&proxy.kept());
    undoing.block_on(abandoned).unwrap().unwrap();
    assert_eq!(server.keys(), [FENCE]);
}
