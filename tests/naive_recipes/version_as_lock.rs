//! A version column as a lock: read the version, work, and raise the version if it is still the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{SECOND_OWNER, TOGETHER};

struct VersionAsLock {
    pool: MySqlPool,
    /// The version that each caller has read.
    read: Mutex<HashMap<String, i64>>,
}

impl Recipe for VersionAsLock {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            sqlx::query("INSERT IGNORE INTO naive_version VALUES (?, 1)").bind(key).execute(&self.pool).await?;
            let read = sqlx::query_scalar("SELECT version FROM naive_version WHERE lock_key = ?").bind(key);
            let version = read.fetch_one(&self.pool).await?;
            self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.into(), version);
            Ok(true)
        })
    }

    /// Only one of those that have worked side by side succeeds.
    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
            let sql = "UPDATE naive_version SET version = version + 1 WHERE lock_key = ? AND version = ?";
            let raised = sqlx::query(sql).bind(key).bind(read.unwrap_or_default()).execute(&self.pool).await?;
            Ok(raised.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_column_lets_two_bodies_run_at_once() {
    let table = "CREATE TABLE IF NOT EXISTS naive_version (lock_key VARCHAR(255) PRIMARY KEY, version BIGINT NOT NULL)";
    for pool in pools(table, 10).await {
        let open = move || -> BoxFuture<'static, Told<VersionAsLock>> {
            let pool = pool.clone();
            Box::pin(async { Ok(VersionAsLock { pool, read: Mutex::default() }) })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER]).await;
    }
}
