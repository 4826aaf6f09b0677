//! "Try Redis; if it is down, use MySQL": one of two clients does not reach Redis.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock_testkit::servers::shared;
use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{SECOND_OWNER, TOGETHER};

struct EitherOr {
    /// `None`: it cannot be reached from this host.
    redis: Option<MultiplexedConnection>,
    pool: MySqlPool,
}

impl Recipe for EitherOr {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            if let Some(redis) = &self.redis {
                let millis = i64::try_from(ttl.as_millis())?;
                let mut set = redis::cmd("SET");
                set.arg(key).arg(owner).arg("NX").arg("PX").arg(millis);
                return Ok(set.query_async::<Option<String>>(&mut redis.clone()).await?.is_some());
            }
            let insert = sqlx::query("INSERT IGNORE INTO naive_either VALUES (?, ?)").bind(key).bind(owner);
            Ok(insert.execute(&self.pool).await?.rows_affected() == 1)
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            if let Some(redis) = &self.redis {
                let script =
                    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
                let mut conn = redis.clone();
                let freed: i64 = redis::Script::new(script).key(key).arg(owner).invoke_async(&mut conn).await?;
                return Ok(freed == 1);
            }
            let sql = "DELETE FROM naive_either WHERE lock_key = ? AND owner = ?";
            Ok(sqlx::query(sql).bind(key).bind(owner).execute(&self.pool).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_of_two_stores_excludes_nobody_of_the_other() {
    let table = "CREATE TABLE IF NOT EXISTS naive_either (lock_key VARCHAR(255) PRIMARY KEY, owner VARCHAR(64))";
    let redis = redis::Client::open(shared().redis().unwrap()).unwrap();
    for pool in pools(table, 10).await {
        let (opened, redis) = (AtomicU32::new(0), redis.clone());
        let open = move || -> BoxFuture<'static, Told<EitherOr>> {
            let reaches = opened.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            let (pool, redis) = (pool.clone(), redis.clone());
            Box::pin(async move {
                let redis = match reaches {
                    true => Some(redis.get_multiplexed_async_connection().await?),
                    false => None,
                };
                Ok(EitherOr { redis, pool })
            })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER]).await;
    }
}
