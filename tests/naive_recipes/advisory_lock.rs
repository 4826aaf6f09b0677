//! `pg_try_advisory_lock(hashtext(key))` over the service's pool.

use std::time::Duration;

use dlock_testkit::servers::shared;
use futures::future::BoxFuture;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::naive::{Recipe, Told, is_caught};
use crate::{SECOND_OWNER, TOGETHER};

struct AdvisoryLock(PgPool);

impl Recipe for AdvisoryLock {
    fn try_lock<'a>(&'a self, key: &'a str, _: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "SELECT pg_try_advisory_lock(hashtext($1))";
            Ok(sqlx::query_scalar(sql).bind(key).fetch_one(&self.0).await?)
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "SELECT pg_advisory_unlock(hashtext($1))";
            Ok(sqlx::query_scalar(sql).bind(key).fetch_one(&self.0).await?)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_advisory_lock_over_a_pool_has_two_holders() {
    let pool = PgPoolOptions::new().max_connections(1).connect(&shared().postgres().unwrap()).await.unwrap();
    let open = move || -> BoxFuture<'static, Told<AdvisoryLock>> {
        let pool = pool.clone();
        Box::pin(async { Ok(AdvisoryLock(pool)) })
    };
    is_caught(open, &[SECOND_OWNER, TOGETHER]).await;
}
