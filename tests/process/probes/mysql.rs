//! MariaDB and MySQL: rows, named locks and sessions, told apart by a database of the trial's own.

use std::iter;

use dlock::{Key, LockKey};
use futures::future::BoxFuture;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};

use super::Probe;
use crate::arena::JOB;
use crate::holder::worker::{self, KEYS};

/// Lease rows.
pub(crate) struct Rows {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

/// `GET_LOCK`.
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
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    format!("{}/{name}", url.rsplit_once('/').unwrap().0)
}

const HELD: &str = "SELECT CONCAT('row ', CAST(k AS CHAR)) FROM dlock_locks \
     WHERE owner IS NOT NULL AND expires_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The locked rows are those that this statement passes over.
const LOCKED: &str = "SELECT CONCAT('locked row ', CAST(a.k AS CHAR)) FROM dlock_row_keys a WHERE NOT EXISTS \
     (SELECT 1 FROM dlock_row_keys b WHERE b.k = a.k FOR UPDATE SKIP LOCKED)";

impl Probe for Rows {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(HELD).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

impl Probe for RowLocks {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(LOCKED).fetch_all(&mut connection).await.unwrap()
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

impl Probe for Named {
    /// Sessions that hold a lock of the trial, and sessions that wait for it.
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
            let mut places = Vec::new();
            for key in iter::once(Key::text(JOB)).chain((0..KEYS).map(worker::key)) {
                let key = LockKey::new(&self.namespace, key).unwrap();
                let holder = "SELECT CAST(IS_USED_LOCK(CONCAT('d1', LEFT(LOWER(SHA2(?, 256)), 62))) AS SIGNED)";
                let holder: Option<i64> =
                    sqlx::query_scalar(holder).bind(key.as_str()).fetch_one(&mut connection).await.unwrap();
                places.extend(holder.map(|session| format!("{} is held by session {session}", key.as_str())));
            }
            let sessions = sessions(&self.url, &self.namespace).await;
            places.extend(sessions.into_iter().filter(|session| session.contains("GET_LOCK(")));
            places
        })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(sessions(&self.url, &self.namespace))
    }
}

/// A session counts with what it does and for how long, so that a failure explains itself.
///
/// MySQL cannot show the table of processes while a statement with bytes in it runs, in whatever session of the server. It can show
/// this list.
async fn sessions(url: &str, database: &str) -> Vec<String> {
    // In no database, so that it does not find itself.
    let (server, _) = url.rsplit_once('/').unwrap();
    let mut connection = MySqlConnection::connect(server).await.unwrap();
    let rows = sqlx::raw_sql("SHOW FULL PROCESSLIST").fetch_all(&mut connection).await.unwrap();
    let ours = rows.iter().filter(|row| text(row, "db") == database);
    let words = ["Id", "Command", "Time", "State", "Info"];
    ours.map(|row| words.map(|word| text(row, word)).join(" ")).map(|words| format!("session {words}")).collect()
}

fn text(row: &MySqlRow, column: &str) -> String {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column).unwrap();
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}
