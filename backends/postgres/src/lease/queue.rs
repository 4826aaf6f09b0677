//! Wait queues are advisory locks of sessions.

use std::time::Duration;

use dlock_sql::{LOCKS, QueueName, TableNames, WaitQueues, Words};
use futures::future::BoxFuture;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::pieces::PIECE_TIME;

/// The server must not end the session during a hold.
const SET_UP: &str = "\
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')";

/// The server checks once a second whether the client of a waiter is still connected. Some platforms cannot, and releases
/// before 14.
const CHECK_CLIENT: &str = "SET client_connection_check_interval = '1s'";

/// Reads the schema of the table: the queues of two schemas of one database are different.
const SCHEMA_QUERY: &str = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('{locks}')";

/// The limits of statements about a row, which each session has.
const LIMITS: &str = "SET lock_timeout = '1s'; SET statement_timeout = '5s'";

/// Wait queues on PostgreSQL.
#[derive(Debug)]
pub(crate) struct AdvisoryLocks {
    schema_query: String,
    tables: TableNames,
}

impl AdvisoryLocks {
    pub(crate) fn of(words: &Words) -> Self {
        let tables = words.tables.clone();
        Self { schema_query: SCHEMA_QUERY.replace("{locks}", &tables.full(LOCKS)), tables }
    }
}

impl WaitQueues<PgConnection> for AdvisoryLocks {
    fn set_up<'a>(&'a self, conn: &'a mut PgConnection) -> BoxFuture<'a, sqlx::Result<String>> {
        Box::pin(async {
            sqlx::raw_sql(SET_UP).execute(&mut *conn).await?;
            match sqlx::raw_sql(CHECK_CLIENT).execute(&mut *conn).await {
                Ok(_) | Err(sqlx::Error::Database(_)) => {}
                Err(error) => return Err(error),
            }
            self.scope(conn).await
        })
    }

    fn scope<'a>(&'a self, conn: &'a mut PgConnection) -> BoxFuture<'a, sqlx::Result<String>> {
        Box::pin(async {
            let schema = sqlx::raw_sql(AssertSqlSafe(self.schema_query.as_str())).fetch_one(conn).await?.try_get(0)?;
            Ok(self.tables.queue_scope(schema))
        })
    }

    fn is_taken<'a>(&'a self, conn: &'a mut PgConnection, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            // It ends with this statement, and two sessions that look do not meet each other.
            let look = AssertSqlSafe(format!("SELECT NOT pg_try_advisory_xact_lock_shared({})", queue.number()));
            sqlx::raw_sql(look).fetch_one(conn).await?.try_get(0)
        })
    }

    fn longest_wait(&self) -> Duration {
        PIECE_TIME
    }

    fn take_turn<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        queue: &'a QueueName,
        wait: Duration,
    ) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let number = queue.number();
            if wait.is_zero() {
                let enter = AssertSqlSafe(format!("SELECT pg_try_advisory_lock({number})"));
                return sqlx::raw_sql(enter).fetch_one(conn).await?.try_get(0);
            }
            // The limits of statements about a row must not end the wait.
            let limit = wait.as_millis() + 1;
            let enter = format!(
                "SET statement_timeout = 0; SET lock_timeout = {limit}; SELECT pg_advisory_lock({number}); {LIMITS}"
            );
            match sqlx::raw_sql(AssertSqlSafe(enter)).execute(&mut *conn).await {
                Ok(_) => Ok(true),
                Err(error) if is_timeout(&error) => {
                    // The server may have granted the turn in the same moment. Then this session would keep it, and
                    // every waiter behind would poll. The session has no other advisory lock.
                    sqlx::raw_sql("SELECT pg_advisory_unlock_all()").execute(conn).await?;
                    Ok(false)
                }
                Err(error) => Err(error),
            }
        })
    }

    fn leave<'a>(&'a self, conn: &'a mut PgConnection, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>> {
        Box::pin(async move {
            let leave = AssertSqlSafe(format!("SELECT pg_advisory_unlock({})", queue.number()));
            sqlx::raw_sql(leave).fetch_one(conn).await?.try_get(0)
        })
    }
}

fn is_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}
