//! `catch (Exception e) { return false; }` around the insert.

use std::sync::Arc;
use std::time::Duration;

use dlock_testkit::Proxy;
use dlock_testkit::servers::shared;
use futures::future::BoxFuture;
use sqlx::Connection;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};

use crate::naive::{Recipe, Told, is_caught_behind};

struct ErrorsAreBusy(MySqlPool);

impl Recipe for ErrorsAreBusy {
    fn try_lock<'a>(&'a self, key: &'a str, owner: &'a str, _: Duration, _: i64) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let insert = sqlx::query("INSERT INTO naive_busy VALUES (?, ?)").bind(key).bind(owner);
            Ok(insert.execute(&self.0).await.is_ok())
        })
    }

    fn unlock<'a>(&'a self, key: &'a str, owner: &'a str) -> BoxFuture<'a, Told<bool>> {
        Box::pin(async move {
            let sql = "DELETE FROM naive_busy WHERE lock_key = ? AND owner = ?";
            Ok(sqlx::query(sql).bind(key).bind(owner).execute(&self.0).await?.rows_affected() == 1)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_is_taken_for_busy_hides_an_outage() {
    for server in [shared().mariadb().unwrap(), shared().mysql().unwrap()] {
        let (proxy, url) = Proxy::in_front_of(&server).unwrap();
        let options = MySqlPoolOptions::new().max_connections(10).acquire_timeout(Duration::from_millis(500));
        let pool = options.connect_lazy(&url).unwrap();
        let table = "CREATE TABLE IF NOT EXISTS naive_busy (lock_key VARCHAR(255) PRIMARY KEY, owner VARCHAR(64))";
        sqlx::raw_sql(table).execute(&mut MySqlConnection::connect(&url).await.unwrap()).await.unwrap();
        let open = move || -> BoxFuture<'static, Told<ErrorsAreBusy>> {
            let pool = pool.clone();
            Box::pin(async { Ok(ErrorsAreBusy(pool)) })
        };
        is_caught_behind(Some(Arc::new(proxy)), open, &["a store that is down is an outage, not contention"]).await;
    }
}
