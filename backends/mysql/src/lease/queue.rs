//! Wait queues are named locks of `GET_LOCK`.

use std::time::Duration;

use dlock_sql::{QueueName, TURN_SILENCE, TableNames, WaitQueues};
use futures::future::BoxFuture;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

/// The longest silence that all platforms accept, in seconds: 23 days. Some cut a longer one without an error.
const LONGEST_SILENCE: u64 = 2_000_000;

/// The server must not end the wait for a turn. Each product skips the comments of the other one.
const LIMITS: &str = "/*M! , max_statement_time = 0 */ /*!50708 , max_execution_time = 0 */";

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
            let set = format!("SET SESSION wait_timeout = {LONGEST_SILENCE} {LIMITS}");
            sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *conn).await?;
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
            let (name, seconds, silence) = (queue.text(), whole_seconds(wait), whole_seconds(TURN_SILENCE));
            let enter = AssertSqlSafe(format!(
                "SET @dlock_turn = GET_LOCK('{name}', {seconds}); \
                 SET SESSION wait_timeout = IF(@dlock_turn = 1, {silence}, {LONGEST_SILENCE}); \
                 SELECT CAST(@dlock_turn AS SIGNED)"
            ));
            match to_bool(sqlx::raw_sql(enter).fetch_one(conn).await?.try_get_unchecked(0)?) {
                Some(entered) => Ok(entered),
                None => Err(sqlx::Error::Protocol("the server ended the wait for a named lock".into())),
            }
        })
    }

    fn keep_turn<'a>(&'a self, conn: &'a mut MySqlConnection, silence: Duration) -> BoxFuture<'a, sqlx::Result<()>> {
        Box::pin(async move {
            let seconds = whole_seconds(silence).min(LONGEST_SILENCE);
            let set = AssertSqlSafe(format!("SET SESSION wait_timeout = {seconds}"));
            sqlx::raw_sql(set).execute(conn).await.map(drop)
        })
    }

    fn leave<'a>(&'a self, conn: &'a mut MySqlConnection, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let leave = AssertSqlSafe(format!(
                "SET SESSION wait_timeout = {LONGEST_SILENCE}; SELECT CAST(RELEASE_LOCK('{}') AS SIGNED)",
                queue.text()
            ));
            Ok(to_bool(sqlx::raw_sql(leave).fetch_one(conn).await?.try_get_unchecked(0)?).unwrap_or(false))
        })
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn to_bool(answer: Option<i64>) -> Option<bool> {
    answer.map(|answer| answer == 1)
}
