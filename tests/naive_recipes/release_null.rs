//! `RELEASE_LOCK` with its 0 and NULL swapped: articles say that 0 means "there is no such lock", so nothing is wrong.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::LATE_RELEASE;
use crate::naive::{Recipe, Told, is_caught, pool_of, pools};

/// A session of its own for each client, as is right.
struct ReleaseNull(MySqlPool);

impl Recipe for ReleaseNull {
    fn try_lock<'a>(&'a self, key: &'a str, _: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "SELECT CAST(GET_LOCK(?, 0) AS SIGNED)";
            let got: Option<i64> = sqlx::query_scalar(sql).bind(key).fetch_one(&self.0).await?;
            Ok(got == Some(1))
        })
    }

    /// NULL is taken for "somebody else's", and it is 0 that says so.
    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "SELECT CAST(RELEASE_LOCK(?) AS SIGNED)";
            let freed: Option<i64> = sqlx::query_scalar(sql).bind(key).fetch_one(&self.0).await?;
            Ok(freed.is_some())
        })
    }

    fn evict<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "SELECT CAST(IS_USED_LOCK(?) AS SIGNED)";
            let session: i64 = sqlx::query_scalar(sql).bind(key).fetch_one(&self.0).await?;
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL {session}"))).execute(&self.0).await?;
            Ok(true)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_swaps_zero_and_null_says_that_a_lost_lock_was_held() {
    for pool in pools("DO 1", 1).await {
        let open = move || -> BoxFuture<'static, Told<ReleaseNull>> {
            let options = pool.connect_options();
            Box::pin(async move { Ok(ReleaseNull(pool_of(options.as_ref().clone()).await?)) })
        };
        is_caught(open, &[LATE_RELEASE]).await;
    }
}
