//! `SET key owner NX PX` in Redis, and a renewal by `SET` of the same.

use std::time::Duration;

use dlock_testkit::servers::shared;
use futures::FutureExt;
use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;

use crate::naive::{Recipe, Told, is_caught};

struct RenewalBySet(MultiplexedConnection);

impl RenewalBySet {
    async fn open() -> Told<Self> {
        let client = redis::Client::open(shared().redis()?)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }

    async fn set(&self, key: &str, owner: &str, ttl: Duration, words: &[&str]) -> Told<bool> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(owner).arg("PX").arg(i64::try_from(ttl.as_millis())?).arg(words);
        let answer: Option<String> = command.query_async(&mut self.0.clone()).await?;
        Ok(answer.is_some())
    }
}

impl Recipe for RenewalBySet {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        self.set(key, owner, ttl, &["NX"]).boxed()
    }

    fn renew<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration) -> BoxFuture<'a, Told<bool>> {
        self.set(key, owner, ttl, &[]).boxed()
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
            let mut conn = self.0.clone();
            let freed: i64 = redis::Script::new(script).key(key).arg(owner).invoke_async(&mut conn).await?;
            Ok(freed == 1)
        })
    }

    fn evict<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Told<bool>> {
        let mut conn = self.0.clone();
        Box::pin(async move { Ok(redis::cmd("DEL").arg(key).query_async::<i64>(&mut conn).await? == 1) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_by_set_takes_the_lock_from_its_next_holder() {
    let cases =
        ["a renewal after another owner has come in is Lost", "a renewal after the end is Lost and creates nothing"];
    is_caught(|| RenewalBySet::open().boxed(), &cases).await;
}
