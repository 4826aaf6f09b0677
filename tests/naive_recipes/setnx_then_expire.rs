//! `SETNX` and then `EXPIRE` in Redis, and `DEL` at the end.

use std::time::Duration;

use dlock_testkit::servers::shared;
use futures::FutureExt;
use futures::future::BoxFuture;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::LATE_RELEASE;
use crate::naive::{Recipe, Told, is_caught};

struct SetNx(MultiplexedConnection);

impl SetNx {
    async fn open() -> Told<Self> {
        let client = redis::Client::open(shared().redis()?)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }
}

impl Recipe for SetNx {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        let mut conn = self.0.clone();
        Box::pin(async move {
            if !conn.set_nx::<_, _, bool>(key, owner).await? {
                return Ok(false);
            }
            let _: () = conn.expire(key, i64::try_from(ttl.as_secs())?).await?;
            Ok(true)
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        let mut conn = self.0.clone();
        Box::pin(async move { Ok(conn.del::<_, i64>(key).await? == 1) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_del_that_compares_nothing_frees_the_lock_of_another() {
    // A lease of half a second is none in whole seconds.
    is_caught(
        || SetNx::open().boxed(),
        &[LATE_RELEASE, "no second owner comes in before the holder's lease has ended"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_dies_between_two_commands_leaves_a_lock_for_ever() {
    let naive = SetNx::open().await.unwrap();
    let mut conn = naive.0.clone();
    let mut keys = (0..1000).map(|_| format!("naive:{:x}", fastrand::u64(..)));
    let key = loop {
        // On a busy machine the first answer may be there within the first poll, or both.
        let key = keys.next().expect("it was never between the two: nothing is proven");
        let mut attempt = naive.try_lock(&key, "me", Duration::from_secs(1), 0);
        // The first command has left. The second one is sent by a later poll, which never comes.
        if (&mut attempt).now_or_never().is_none() {
            while !conn.exists::<_, bool>(&key).await.unwrap() {
                tokio::task::yield_now().await;
            }
            drop(attempt);
            if conn.ttl::<_, i64>(&key).await.unwrap() == -1 {
                break key;
            }
        }
    };
    // It has no end.
    assert!(!naive.try_lock(&key, "somebody", Duration::from_secs(1), 0).await.unwrap());
    let _: i64 = conn.del(&key).await.unwrap();
}
