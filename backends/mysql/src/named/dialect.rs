//! The words and requests of named locks on MySQL and MariaDB.

use std::fmt::Write;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, LockKey, Mode, Result};
use dlock_sql::{
    Dialect, LockName, NamedAnswer, NamedAsk, NamedDialect, NamedDrawn, NamedWait, NamedWords, RowDialect, SessionId,
    Statement, Value, check_tables, hex, prepare_tables,
};
use futures::TryStreamExt;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Either, Executor, Row};

use crate::lease::MySql;
use crate::lease::tables::{self, NAMED_LOCKS, Tables};
use crate::server::fault::fault;
use crate::server::{cluster, other_tables, writable_server};

/// Compares the name as the server's functions do. The column has bytes, so that no collation changes how names compare.
const IS_HELD: &str = "COALESCE(session = IS_USED_LOCK(CONVERT(lock_id USING utf8mb4)), 0)";

/// Switches off the server's statement timeouts, which would end a wait. Each product knows only its own setting.
const NO_LIMITS: &str =
    "SET SESSION autocommit = 1 /*M!100101 , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */";

/// The longest silence that a server allows, in seconds: a year.
const MAX_SILENCE_SECONDS: u64 = 365 * 24 * 3600;

impl NamedDialect for MySql {
    fn named_words(&self) -> NamedWords {
        NamedWords {
            on_conflict: "ON DUPLICATE KEY UPDATE",
            is_held: IS_HELD,
            if_granted: Some(" AND @dlock_granted = 1"),
            sequence: None,
            read_write: None,
            longest_ttl: Duration::from_secs(MAX_SILENCE_SECONDS),
        }
    }

    fn lock_name(&self, key: &LockKey) -> Result<LockName> {
        let name = key.as_str();
        if name.starts_with("dl1:") {
            return Ok(LockName::text_of(key));
        }
        if name.is_ascii() && name.len() <= 64 {
            return Ok(LockName::literal_text(name));
        }
        let error = Error::new(
            ErrorKind::Unsupported { need: "a name of at most 64 characters of ASCII".into() },
            "the server takes no such name for a lock",
        );
        Err(error.with_key(name))
    }

    async fn connect_named(&self) -> Result<(MySqlConnection, SessionId)> {
        let (mut conn, _) = self.connect().await?;
        sqlx::raw_sql(NO_LIMITS).execute(&mut conn).await.map_err(fault)?;
        let number = self.who_answers(&mut conn).await.map_err(fault)?;
        Ok((conn, SessionId { number, began: 0 }))
    }

    async fn prepare_named(&self, conn: &mut MySqlConnection) -> Result<()> {
        refuse_clusters(conn).await?;
        prepare_tables(Tables { conn, names: &self.words().tables }, &NAMED_LOCKS).await
    }

    async fn named_health(&self, conn: &mut MySqlConnection) -> Result<Health> {
        writable_server(conn).await?;
        refuse_clusters(conn).await?;
        check_tables(Tables { conn, names: &self.words().tables }, &NAMED_LOCKS).await?;
        tables::check_writable(conn, &self.words().tables).await?;
        tables::health(conn, &self.words().tables).await
    }

    async fn other_named_table(&self, conn: &mut MySqlConnection, way: (&str, &str)) -> Result<Option<String>> {
        other_tables::with_named_locks(conn, &self.words().tables, way).await.map_err(fault)
    }

    async fn end_after(&self, conn: &mut MySqlConnection, silence: Duration) -> Result<()> {
        let seconds = whole_seconds(silence);
        // A server may allow less, as by `--maximum-wait-timeout`. A strict session would not hear how much.
        let set = AssertSqlSafe(format!(
            "SET @dlock_sql_mode = @@SESSION.sql_mode; SET SESSION sql_mode = ''; \
             SET SESSION wait_timeout = {seconds}; SET SESSION sql_mode = @dlock_sql_mode; \
             SELECT CAST(@@SESSION.wait_timeout AS UNSIGNED)"
        ));
        let row = sqlx::raw_sql(set).fetch_one(conn).await;
        let set: u64 = row.map_err(fault)?.try_get_unchecked(0).map_err(fault)?;
        if set == seconds {
            return Ok(());
        }
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(set));
        Err(Error::new(
            ErrorKind::TtlOutOfRange { min, max },
            format!("this server ends a silent session after {set} s at the latest, so a ttl cannot be longer"),
        ))
    }

    async fn lock(
        &self,
        conn: &mut MySqlConnection,
        session: SessionId,
        (lock, _): (&LockName, Mode),
        wait: NamedWait,
    ) -> sqlx::Result<NamedAnswer> {
        let seconds = whole_seconds(wait.time);
        // In one message: the server grants the lock to waiters in the order of their messages.
        let limit = match seconds {
            0 => String::new(),
            _ => format!("SET SESSION wait_timeout = {}; ", whole_seconds(wait.silence)),
        };
        let name = hex(lock.id.as_bytes());
        let sql = format!(
            "{limit}SELECT CAST(GET_LOCK(CONVERT(X'{name}' USING utf8mb4), {seconds}) AS SIGNED), \
             CAST(CONNECTION_ID() AS SIGNED)"
        );
        answer_of(&sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await?, session)
    }

    /// The second statement learns from the variable, and not from the lock itself, whether the lock was granted: a
    /// replica that repeats statements knows variables, and no locks.
    async fn lock_and_draw(
        &self,
        conn: &mut MySqlConnection,
        session: SessionId,
        ask: NamedAsk<'_>,
    ) -> sqlx::Result<NamedDrawn> {
        let name = format!("CONVERT(X'{}' USING utf8mb4)", hex(ask.lock.id.as_bytes()));
        let lock = match ask.frees_first {
            true => format!("CASE RELEASE_LOCK({name}) WHEN 1 THEN GET_LOCK({name}, 0) ELSE -1 END"),
            false => format!("GET_LOCK({name}, 0)"),
        };
        let sql = format!(
            "SET @dlock_granted = {lock}; \
             SELECT CAST(@dlock_granted AS SIGNED), CAST(CONNECTION_ID() AS SIGNED); {}",
            with_values(ask.stamp, ask.values)
        );
        let mut answers = conn.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql)));
        let (mut answer, mut token) = (None, None);
        loop {
            match answers.try_next().await {
                Ok(Some(Either::Right(row))) => {
                    answer = Some(match row.try_get_unchecked::<Option<i64>, _>(0)? {
                        Some(-1) => None,
                        _ => Some(answer_of(&row, session)?),
                    });
                }
                Ok(Some(Either::Left(done))) if done.rows_affected() > 0 => {
                    token = i64::try_from(done.last_insert_id()).ok();
                }
                Ok(Some(Either::Left(_))) => {}
                Ok(None) => {
                    let answer = answer.ok_or_else(|| sqlx::Error::Protocol("GET_LOCK has no answer".into()))?;
                    return Ok((answer, Ok(token)));
                }
                Err(error) => {
                    return match answer {
                        Some(answer) => Ok((answer, Err(error))),
                        None => Err(error),
                    };
                }
            }
        }
    }

    async fn unlock(&self, conn: &mut MySqlConnection, lock: &LockName, _: Mode) -> sqlx::Result<bool> {
        let query = sqlx::query("SELECT CAST(RELEASE_LOCK(?) AS SIGNED)").bind(&lock.id);
        let freed: Option<i64> = query.fetch_one(conn).await?.try_get_unchecked(0)?;
        Ok(freed == Some(1))
    }

    async fn who_answers(&self, conn: &mut MySqlConnection) -> sqlx::Result<i64> {
        let query = sqlx::query("SELECT CAST(CONNECTION_ID() AS SIGNED)");
        query.fetch_one(conn).await?.try_get_unchecked(0)
    }

    async fn end_session(&self, conn: &mut MySqlConnection, number: i64) -> sqlx::Result<()> {
        self.kill(conn, number).await
    }

    /// The names are written as hexadecimal digits, so nothing needs to be escaped.
    async fn hold_all(&self, conn: &mut MySqlConnection, holds: &[(LockName, SessionId)]) -> sqlx::Result<Vec<bool>> {
        let mut sql = String::from("SELECT CONCAT(''");
        for (lock, session) in holds {
            sql.push_str(",IS_USED_LOCK(CONVERT(X'");
            // Writing into a string cannot fail.
            for byte in lock.id.bytes() {
                let _ = write!(sql, "{byte:02x}");
            }
            let _ = write!(sql, "' USING utf8mb4))<=>{}", session.number);
        }
        sql.push(')');
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await?;
        let held: Option<Vec<u8>> = row.try_get_unchecked(0)?;
        Ok(held.unwrap_or_default().into_iter().map(|held| held == b'1').collect())
    }
}

/// The answer of `GET_LOCK`, with the session that gave it.
fn answer_of(row: &MySqlRow, session: SessionId) -> sqlx::Result<NamedAnswer> {
    let number: i64 = row.try_get_unchecked(1)?;
    Ok(match row.try_get_unchecked::<Option<i64>, _>(0)? {
        _ if number != session.number => NamedAnswer::Elsewhere,
        Some(1) => NamedAnswer::Granted,
        Some(0) => NamedAnswer::Taken,
        Some(_) => return Err(sqlx::Error::Protocol("GET_LOCK returned an invalid answer".into())),
        None => NamedAnswer::Interrupted,
    })
}

/// A statement with its values in it, as one of several in a message must be.
fn with_values(statement: &Statement, values: &[Value<'_>]) -> String {
    let mut parts = statement.sql.split('?');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for (part, index) in parts.zip(&statement.order) {
        // Writing into a string cannot fail.
        let _ = match values.get(*index) {
            Some(Value::Int(number) | Value::Maybe(Some(number))) => write!(sql, "{number}"),
            Some(Value::Text(text) | Value::MaybeText(Some(text))) => write!(sql, "X'{}'", hex(text.as_bytes())),
            Some(Value::Bytes(bytes)) => write!(sql, "X'{}'", hex(bytes)),
            Some(Value::Maybe(None) | Value::MaybeText(None)) | None => write!(sql, "NULL"),
        };
        sql.push_str(part);
    }
    sql
}

/// Refuses a cluster in which every node accepts writes: each node has named locks of its own, so they exclude nobody.
pub(crate) async fn refuse_clusters(conn: &mut MySqlConnection) -> Result<()> {
    let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", cluster::variables());
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    for row in &rows {
        let (name, value): (String, String) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
        if cluster::has_several_writers(&name, &value) {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a server whose named locks all writers see".into() },
                "this server is a node of a cluster with several writable nodes, and each has named locks of its own",
            ));
        }
    }
    Ok(())
}

/// Rounded up to whole seconds, and limited to what the server allows.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).min(MAX_SILENCE_SECONDS)
}
