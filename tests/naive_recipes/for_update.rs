//! `SELECT … FOR UPDATE` without a transaction: the row is locked for as long as the statement runs.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{SECOND_OWNER, TOGETHER};

struct ForUpdate(MySqlPool);

impl Recipe for ForUpdate {
    fn try_lock<'a>(&'a self, key: &'a str, _: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            sqlx::query("INSERT IGNORE INTO naive_for_update VALUES (?)").bind(key).execute(&self.0).await?;
            let sql = "SELECT lock_key FROM naive_for_update WHERE lock_key = ? FOR UPDATE";
            Ok(sqlx::query(sql).bind(key).fetch_optional(&self.0).await?.is_some())
        })
    }

    /// The end of the transaction that never was.
    fn unlock<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async { Ok(true) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_update_in_autocommit_excludes_nobody() {
    let table = "CREATE TABLE IF NOT EXISTS naive_for_update (lock_key VARCHAR(255) PRIMARY KEY)";
    for pool in pools(table, 10).await {
        let open = move || -> BoxFuture<'static, Told<ForUpdate>> {
            let pool = pool.clone();
            Box::pin(async { Ok(ForUpdate(pool)) })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER]).await;
    }
}
