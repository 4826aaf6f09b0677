//! A row with a unique key: delete it if it has expired, insert another one.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};

/// The server deletes by its own clock, `NOW()`.
#[derive(Clone)]
struct DeleteThenInsert {
    pool: MySqlPool,
    /// Whether the client writes the end of the lease by its own clock, as by `System.currentTimeMillis()`.
    by_client: bool,
}

impl Recipe for DeleteThenInsert {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, ttl: Duration, now: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_row WHERE lock_key = ? AND expire_time < NOW(6)";
            sqlx::query(sql).bind(key).execute(&self.pool).await?;
            let ttl = i64::try_from(ttl.as_millis())?;
            let (sql, until) = match self.by_client {
                true => ("INSERT INTO naive_row VALUES (?, ?, FROM_UNIXTIME(? / 1000))", now + ttl),
                false => ("INSERT INTO naive_row VALUES (?, ?, DATE_ADD(NOW(6), INTERVAL ? * 1000 MICROSECOND))", ttl),
            };
            match sqlx::query(sql).bind(key).bind(owner).bind(until).execute(&self.pool).await {
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
                inserted => Ok(inserted?.rows_affected() == 1),
            }
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_row WHERE lock_key = ? AND holder = ?";
            Ok(sqlx::query(sql).bind(key).bind(owner).execute(&self.pool).await?.rows_affected() == 1)
        })
    }
}

async fn fails(by_client: bool, by: &[&str]) {
    let table = "CREATE TABLE IF NOT EXISTS naive_row (lock_key VARCHAR(255) PRIMARY KEY, holder VARCHAR(64) NOT NULL, \
                 expire_time DATETIME(6) NOT NULL)";
    let caught = pools(table, 10).await.into_iter().map(async |pool| {
        let recipe = DeleteThenInsert { pool, by_client };
        let open = move || -> BoxFuture<'static, Told<DeleteThenInsert>> {
            let recipe = recipe.clone();
            Box::pin(async { Ok(recipe) })
        };
        is_caught(open, by).await;
    });
    join_all(caught).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_end_a_client_writes_by_its_clock_has_two_holders() {
    // The end that a client with a late clock writes is over already.
    fails(true, &["a client's wrong clock changes nothing"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_lives_by_the_servers_clock_alone_refuses_its_own_holder() {
    // An owner whose answer was lost meets its own row. The collation folds the case of keys.
    let cases = [
        "an owner may ask again, and one release frees the lock",
        "keys that differ by case are different locks",
        "the longest key works like any other key",
    ];
    fails(false, &cases).await;
}
