//! A row whose holder is the service or the host, so that the lock is reentrant.

use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::mysql::MySqlPool;

use crate::naive::{Recipe, Told, is_caught, pools};
use crate::{LATE_RELEASE, SECOND_OWNER, TOGETHER};

const HOST: &str = "order-service-1";

struct OneOwner(MySqlPool);

impl Recipe for OneOwner {
    fn try_lock<'a>(&'a self, key: &'a str, _: &'a str, ttl: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let until = "NOW(6) + INTERVAL ? MICROSECOND";
            let sql = format!(
                "INSERT INTO naive_owner (lock_name, holder, expire_time) VALUES (?, ?, {until}) ON DUPLICATE KEY UPDATE \
                 expire_time = IF(holder = VALUES(holder) OR expire_time < NOW(6), VALUES(expire_time), expire_time)"
            );
            let micros = i64::try_from(ttl.as_micros())?;
            let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(key).bind(HOST).bind(micros);
            Ok(query.execute(&self.0).await?.rows_affected() > 0)
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, _: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_owner WHERE lock_name = ? AND holder = ?";
            Ok(sqlx::query(sql).bind(key).bind(HOST).execute(&self.0).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owner_for_a_whole_service_has_two_holders() {
    let table = "CREATE TABLE IF NOT EXISTS naive_owner (lock_name VARCHAR(255) PRIMARY KEY, holder VARCHAR(64) NOT NULL, \
                 expire_time DATETIME(6) NOT NULL)";
    for pool in pools(table, 10).await {
        let open = move || -> BoxFuture<'static, Told<OneOwner>> {
            let pool = pool.clone();
            Box::pin(async { Ok(OneOwner(pool)) })
        };
        is_caught(open, &[SECOND_OWNER, TOGETHER, LATE_RELEASE]).await;
    }
}
