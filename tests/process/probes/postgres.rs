//! PostgreSQL: rows, advisory locks and sessions, told apart by a database of the trial's own.

use futures::future::BoxFuture;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::Probe;

/// Lease rows.
pub(crate) struct Rows {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

/// Advisory locks.
pub(crate) struct Named {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

/// `SELECT … FOR UPDATE`.
pub(crate) struct RowLocks {
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

const ADVISORY: &str = "SELECT CASE WHEN granted THEN 'held' ELSE 'waited for' END || ' by session ' || pid FROM pg_locks \
     WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = $1)";

const TRANSACTIONS: &str = "SELECT 'transaction of session ' || pid || ': ' || query FROM pg_stat_activity \
     WHERE datname = $1 AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";

impl Probe for Rows {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(HELD).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

impl Probe for RowLocks {
    /// The open transactions of the trial's database.
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(TRANSACTIONS).bind(&self.namespace).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

impl Probe for Named {
    /// The sessions that hold a lock of the trial's database, or wait for one.
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(ADVISORY).bind(&self.namespace).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

async fn sessions(url: &str, database: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(SESSIONS).bind(database).fetch_all(&mut connection).await.unwrap()
}
