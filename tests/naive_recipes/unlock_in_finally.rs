//! `finally { unlock }` around an attempt that may have failed, and an unlock that names the key alone.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{LATE_RELEASE, SECOND_OWNER, TOGETHER};

struct UnlockInFinally(MySqlPool);

impl Recipe for UnlockInFinally {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_finally WHERE lock_key = ? AND expire_time < NOW(6)";
            sqlx::query(sql).bind(key).execute(&self.0).await?;
            let sql = "INSERT IGNORE INTO naive_finally VALUES (?, NOW(6) + INTERVAL ? MICROSECOND)";
            let query = sqlx::query(sql).bind(key).bind(i64::try_from(ttl.as_micros())?);
            let is_ours = query.execute(&self.0).await?.rows_affected() == 1;
            if !is_ours {
                // The caller has returned, by way of its `finally`.
                self.unlock(key, owner).await?;
            }
            Ok(is_ours)
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_finally WHERE lock_key = ?";
            Ok(sqlx::query(sql).bind(key).execute(&self.0).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_of_what_was_never_locked_frees_the_lock_of_another() {
    let table = "CREATE TABLE IF NOT EXISTS naive_finally (lock_key VARCHAR(255) PRIMARY KEY, expire_time DATETIME(6))";
    for pool in pools(table, 10).await {
        let open = move || -> BoxFuture<'static, Told<UnlockInFinally>> {
            let pool = pool.clone();
            Box::pin(async { Ok(UnlockInFinally(pool)) })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER, LATE_RELEASE]).await;
    }
}
