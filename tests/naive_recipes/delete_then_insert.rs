//! A row with a unique key: look whether it has expired by the client's clock, delete it, insert another one.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};

struct DeleteThenInsert(MySqlPool);

impl Recipe for DeleteThenInsert {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, now: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_insert WHERE lock_name = ? AND expire_time < ?";
            sqlx::query(sql).bind(key).bind(now).execute(&self.0).await?;
            let sql = "INSERT INTO naive_insert (lock_name, owner, expire_time) VALUES (?, ?, ?)";
            let until = now + i64::try_from(ttl.as_millis())?;
            match sqlx::query(sql).bind(key).bind(owner).bind(until).execute(&self.0).await {
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
                inserted => Ok(inserted?.rows_affected() == 1),
            }
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_insert WHERE lock_name = ? AND owner = ?";
            Ok(sqlx::query(sql).bind(key).bind(owner).execute(&self.0).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_deleted_by_the_clients_clock_has_two_holders() {
    let table = "CREATE TABLE IF NOT EXISTS naive_insert (lock_name VARCHAR(255) PRIMARY KEY, owner VARCHAR(64) NOT NULL, \
                 expire_time BIGINT NOT NULL)";
    for pool in pools(table, 10).await {
        let open = move || -> BoxFuture<'static, Told<DeleteThenInsert>> {
            let pool = pool.clone();
            Box::pin(async { Ok(DeleteThenInsert(pool)) })
        };
        // Whose clock is ahead deletes living locks. An owner whose answer was lost meets its own row. The collation folds
        // the case of keys.
        let cases = [
            "a client's wrong clock changes nothing",
            "an owner may ask again, and one release frees the lock",
            "keys that differ by case are different locks",
            "the longest key works like any other key",
        ];
        is_caught(open, &cases).await;
    }
}
