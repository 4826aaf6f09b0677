//! `SELECT GET_LOCK(key, 0)` over the service's pool, and `RELEASE_LOCK` over the same pool.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{SECOND_OWNER, TOGETHER};

struct GetLock(MySqlPool);

impl Recipe for GetLock {
    fn try_lock<'a>(&'a self, key: &'a str, _: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let got: Option<i64> =
                sqlx::query_scalar("SELECT CAST(GET_LOCK(?, 0) AS SIGNED)").bind(key).fetch_one(&self.0).await?;
            Ok(got == Some(1))
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let freed: Option<i64> =
                sqlx::query_scalar("SELECT CAST(RELEASE_LOCK(?) AS SIGNED)").bind(key).fetch_one(&self.0).await?;
            Ok(freed == Some(1))
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_lock_over_a_pool_has_two_holders() {
    // Side by side, since a case that needs two sessions waits for 20 s.
    let caught = pools("DO 1", 1).await.into_iter().map(async |pool| {
        let open = move || -> BoxFuture<'static, Told<GetLock>> {
            let pool = pool.clone();
            Box::pin(async { Ok(GetLock(pool)) })
        };
        // The same session gets the lock twice; the server folds the case of names, and takes 64 characters.
        let cases = [
            SECOND_OWNER,
            TOGETHER,
            "keys that differ by case are different locks",
            "the longest key works like any other key",
        ];
        is_caught(open, &cases).await;
    });
    join_all(caught).await;
}
