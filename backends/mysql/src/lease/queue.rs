//! Wait queues are named locks of `GET_LOCK`.

use std::time::Duration;

use dlock_sql::{QueueName, TableNames, WaitQueues};
use futures::future::BoxFuture;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

/// The server must end neither the session during a hold nor the wait for a turn. 23 days are the longest silence that
/// all platforms accept; some cut a longer one without an error. Each product skips the comments of the other one.
const SET_UP: &str =
    "SET SESSION wait_timeout = 2000000 /*M! , max_statement_time = 0 */ /*!50708 , max_execution_time = 0 */";

/// The longest wait that the server accepts: a year.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Wait queues on MySQL and MariaDB. While a session waits for a named lock, the server checks once a second whether
/// its client is still connected.
#[derive(Debug)]
pub(super) struct NamedLocks {
    pub(super) tables: TableNames,
}

impl WaitQueues<MySqlConnection> for NamedLocks {
    fn set_up<'a>(&'a self, conn: &'a mut MySqlConnection) -> BoxFuture<'a, sqlx::Result<String>> {
        Box::pin(async {
            sqlx::raw_sql(SET_UP).execute(&mut *conn).await?;
            self.scope(conn).await
        })
    }

    fn scope<'a>(&'a self, conn: &'a mut MySqlConnection) -> BoxFuture<'a, sqlx::Result<String>> {
        Box::pin(async {
            // All databases of a server share its named locks, so the queue's name needs the database.
            let row = sqlx::raw_sql("SELECT CAST(DATABASE() AS CHAR)").fetch_one(conn).await?;
            Ok(self.tables.queue_scope(row.try_get(0)?))
        })
    }

    fn is_taken<'a>(
        &'a self,
        conn: &'a mut MySqlConnection,
        queue: &'a QueueName,
    ) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let look = AssertSqlSafe(format!("SELECT CAST(IS_FREE_LOCK('{}') AS SIGNED)", queue.text()));
            Ok(to_bool(sqlx::raw_sql(look).fetch_one(conn).await?.try_get_unchecked(0)?) == Some(false))
        })
    }

    fn longest_wait(&self) -> Duration {
        MAX_WAIT
    }

    fn take_turn<'a>(
        &'a self,
        conn: &'a mut MySqlConnection,
        queue: &'a QueueName,
        wait: Duration,
    ) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let enter = sqlx::query("SELECT CAST(GET_LOCK(?, ?) AS SIGNED)").bind(queue.text()).bind(seconds);
            match to_bool(enter.fetch_one(conn).await?.try_get_unchecked(0)?) {
                Some(entered) => Ok(entered),
                None => Err(sqlx::Error::Protocol("the server ended the wait for a named lock".into())),
            }
        })
    }

    fn leave<'a>(&'a self, conn: &'a mut MySqlConnection, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let leave = sqlx::query("SELECT CAST(RELEASE_LOCK(?) AS SIGNED)").bind(queue.text());
            Ok(to_bool(leave.fetch_one(conn).await?.try_get_unchecked(0)?).unwrap_or(false))
        })
    }
}

fn to_bool(answer: Option<i64>) -> Option<bool> {
    answer.map(|answer| answer == 1)
}
