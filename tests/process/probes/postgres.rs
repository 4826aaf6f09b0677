//! PostgreSQL: rows and sessions, told apart by a database of the trial's own.

use futures::future::BoxFuture;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::Probe;

pub(crate) struct Rows {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

/// Makes the database `name`, and gives the URL with it.
pub(super) async fn own_database(url: &str, name: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    format!("{}/{name}", url.rsplit_once('/').unwrap().0)
}

/// A session counts with what it does, so that a failure explains itself.
const SESSIONS: &str = "SELECT concat_ws(' ', 'session', pid, state, query) FROM pg_stat_activity \
     WHERE datname = $1 AND pid <> pg_backend_pid()";

const HELD: &str = "SELECT 'row ' || k FROM dlock_locks \
     WHERE owner IS NOT NULL AND expires_us > extract(epoch FROM clock_timestamp()) * 1000000";

impl Probe for Rows {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(HELD).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(SESSIONS).bind(&self.namespace).fetch_all(&mut connection).await.unwrap()
        })
    }
}
