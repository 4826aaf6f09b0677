//! A lock table that is partitioned by time: each unique key must have the partition's column, so none is on the key alone.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{SECOND_OWNER, TOGETHER};

const COLUMNS: &str = "lock_name VARCHAR(255) NOT NULL, owner VARCHAR(64) NOT NULL, \
    created_at DATETIME(6) NOT NULL DEFAULT NOW(6)";

const PARTITIONS: &str = "PARTITION BY RANGE COLUMNS (created_at) (PARTITION p2025 VALUES LESS THAN ('2026-01-01'), \
    PARTITION later VALUES LESS THAN (MAXVALUE))";

struct Partitioned(MySqlPool);

impl Recipe for Partitioned {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO naive_parts (lock_name, owner) VALUES (?, ?)").bind(key).bind(owner);
            match insert.execute(&self.0).await {
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
                inserted => Ok(inserted?.rows_affected() == 1),
            }
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_parts WHERE lock_name = ? AND owner = ?";
            Ok(sqlx::query(sql).bind(key).bind(owner).execute(&self.0).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_partitioned_by_time_has_two_rows_of_one_lock() {
    let table =
        format!("CREATE TABLE IF NOT EXISTS naive_parts ({COLUMNS}, PRIMARY KEY (lock_name, created_at)) {PARTITIONS}");
    for pool in pools(&table, 10).await {
        // As the article has it.
        let key_alone = format!("CREATE TABLE naive_parts_key ({COLUMNS}, PRIMARY KEY (lock_name)) {PARTITIONS}");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(key_alone)).execute(&pool).await.unwrap_err();
        assert!(refused.to_string().contains("1503"), "{refused}");
        let open = move || -> BoxFuture<'static, Told<Partitioned>> {
            let pool = pool.clone();
            Box::pin(async { Ok(Partitioned(pool)) })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER]).await;
    }
}
