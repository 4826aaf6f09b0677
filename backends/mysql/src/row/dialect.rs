//! How MySQL and MariaDB do row locks.
//!
//! Other sessions may see the number of a transaction of these servers only with a special right. So each hold also has
//! a named lock of its session, with the hold id in its name. Asking who uses that lock shows whether the hold lives.
//! In the transaction itself a savepoint is its mark: if the server has rolled the transaction back, as at a deadlock,
//! or has committed it, as before a change of a table's definition, the savepoint is gone.

use std::fmt::Write;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use dlock_sql::{
    Committed, Dialect, NamedDialect, RowAsk, RowDialect, RowId, RowKey, RowKind, RowTable, RowWords, Taken,
    check_tables, hex, prepare_tables,
};
use futures::TryStreamExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Either, Executor, Row};

use super::table;
use crate::lease::MySql;
use crate::lease::dialect::Bound;
use crate::lease::tables::{self, Tables, row_locks};
use crate::named::refuse_clusters;
use crate::server::fault::{fault, number};
use crate::server::writable_server;

/// The named lock of a hold begins so.
const MARK: &str = "dlr";

const IS_HELD: &str = "COALESCE({session} = IS_USED_LOCK(CONCAT('dlr', CONVERT({hold} USING utf8mb4))), 0)";

/// The body's statements run here, so all is as sqlx sets it up for others, and no limit is dlock's. Without `autocommit` a
/// statement after the server has undone the transaction cannot be committed by itself. A transaction that the body has begun by
/// ending the hold's may not write. Each server knows only its own limits.
const SET_UP: &str = "\
    SET SESSION autocommit = 0, completion_type = NO_CHAIN, time_zone = '+00:00', \
        sql_mode = CONCAT(@@GLOBAL.sql_mode, ',PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION') \
        /*M!100301 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, \
        idle_write_transaction_timeout = 0 */ /*!80000 , max_execution_time = 0 */; \
    SET NAMES utf8mb4; \
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION TRANSACTION READ ONLY";

/// How long a statement waits for a row.
const ROW_WAIT: &str = "innodb_lock_wait_timeout";

/// Waits for no row, but for a change of the table's definition, for longer than the request may take. MariaDB's `NOWAIT` waits for
/// neither and gives one answer to both, so a change that waits would be taken for a holder. So would MySQL's end of a short wait.
const AT_ONCE: &str = "\
    /*M!100301 SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 60 FOR */ \
    SELECT /*+ SET_VAR(lock_wait_timeout = 60) */";

/// Fails where there is no such savepoint. The server has nothing else that belongs to one transaction only.
const RENEW_MARK: &str = "RELEASE SAVEPOINT dlock_hold; SAVEPOINT dlock_hold";

impl RowDialect for MySql {
    fn row_words(&self) -> RowWords {
        RowWords {
            on_conflict: "ON DUPLICATE KEY UPDATE",
            is_held: IS_HELD,
            lives: IS_HELD,
            from_nothing: " FROM DUAL",
            any: "MAX",
            longest_ttl: self.named_words().longest_ttl,
        }
    }

    async fn connect_row(&self) -> Result<(MySqlConnection, i64, String)> {
        let (mut conn, server) = self.connect().await?;
        sqlx::raw_sql(SET_UP).execute(&mut conn).await.map_err(fault)?;
        let number = self.who_answers(&mut conn).await.map_err(fault)?;
        // `BEGIN` begins a block of statements with `sql_mode=ORACLE`.
        std::mem::forget(conn.begin_with("START TRANSACTION").await.map_err(fault)?);
        Ok((conn, number, server))
    }

    async fn prepare_row(&self, conn: &mut MySqlConnection, table: &RowTable) -> Result<(RowKind, String)> {
        refuse_clusters(conn).await?;
        refuse_log_of_statements(conn).await?;
        prepare_tables(Tables { conn, names: &self.words().tables }, &row_locks(table.is_own)).await?;
        table::kind_of(conn, table).await
    }

    async fn row_health(&self, conn: &mut MySqlConnection, table: &RowTable) -> Result<Health> {
        writable_server(conn).await?;
        refuse_clusters(conn).await?;
        refuse_log_of_statements(conn).await?;
        check_tables(Tables { conn, names: &self.words().tables }, &row_locks(table.is_own)).await?;
        tables::check_writable(conn, &self.words().tables).await?;
        table::kind_of(conn, table).await?;
        tables::health(conn, &self.words().tables).await
    }

    async fn end_row_after(&self, conn: &mut MySqlConnection, silence: Duration) -> Result<()> {
        self.end_after(conn, silence).await?;
        let wait = at_most("lock_wait_timeout", silence);
        let limits = format!("SET SESSION {wait}, {}", at_most(ROW_WAIT, silence));
        sqlx::raw_sql(AssertSqlSafe(limits)).execute(conn).await.map(drop).map_err(fault)
    }

    async fn take_row(&self, conn: &mut MySqlConnection, ask: RowAsk<'_>) -> sqlx::Result<Taken> {
        let wait = ask.wait.map(whole_seconds).filter(|seconds| *seconds > 0);
        match locked(conn, ask, wait).await {
            // MariaDB has one number for both.
            Err(error) if matches!(number(&error), Some(1205 | 3572)) => Ok(Taken::Busy),
            taken => taken,
        }
    }

    async fn end_wait(&self, conn: &mut MySqlConnection, _: Taken, ttl: Duration) -> sqlx::Result<()> {
        let set = format!("SET SESSION {}, wait_timeout = {}", at_most(ROW_WAIT, ttl), whole_seconds(ttl));
        sqlx::raw_sql(AssertSqlSafe(set)).execute(conn).await.map(drop)
    }

    /// This ends savepoints of the body. It also runs before each loan of the connection, so that such a savepoint
    /// never outlives a loan, whether or not a renewal comes.
    async fn is_in(&self, conn: &mut MySqlConnection, _: &RowId) -> sqlx::Result<bool> {
        // If the body has given up the commit of a nested transaction, the client library sends a rollback to a
        // savepoint that is gone. The first answer then belongs to this rollback.
        for _ in 0..2 {
            match sqlx::raw_sql(RENEW_MARK).execute(&mut *conn).await {
                Err(error) if number(&error) == Some(1305) => {}
                answer => return answer.map(|_| true),
            }
        }
        Ok(false)
    }

    fn is_elsewhere(&self, error: &sqlx::Error) -> bool {
        number(error) == Some(1792)
    }

    async fn commit(&self, conn: &mut MySqlConnection, id: &RowId) -> sqlx::Result<Committed> {
        // The first one fails if this is another transaction than the one that has locked the row.
        let sql = format!("RELEASE SAVEPOINT dlock_hold; COMMIT; {}", unmark(id));
        let mut answers = conn.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql)));
        let mut done = 0;
        loop {
            match answers.try_next().await {
                Ok(Some(Either::Left(_))) => done += 1,
                Ok(Some(Either::Right(_))) => {}
                Ok(None) => return Ok(Committed::Clean),
                // It is committed, whatever becomes of the mark.
                Err(_) if done >= 2 => return Ok(Committed::Marked),
                // There is no such savepoint, and the server has stopped there.
                Err(error) if done == 0 && number(&error) == Some(1305) => return Ok(Committed::Elsewhere),
                Err(error) => return Err(error),
            }
        }
    }

    async fn undo(&self, conn: &mut MySqlConnection, id: &RowId) -> sqlx::Result<bool> {
        let sql = format!("RELEASE SAVEPOINT dlock_hold; ROLLBACK; {}", unmark(id));
        match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await {
            Ok(_) => Ok(true),
            // There is no such savepoint, and the server has stopped there.
            Err(error) if number(&error) == Some(1305) => {
                let is_in = self.is_in(conn, id).await?;
                self.rollback(conn, id).await.map(|()| is_in)
            }
            Err(error) => Err(error),
        }
    }

    async fn rollback(&self, conn: &mut MySqlConnection, id: &RowId) -> sqlx::Result<()> {
        let sql = if id.transaction == 0 { "ROLLBACK".into() } else { format!("ROLLBACK; {}", unmark(id)) };
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
    }

    /// Hold ids are hexadecimal digits, so nothing needs to be escaped.
    async fn are_held(&self, conn: &mut MySqlConnection, ids: &[RowId]) -> sqlx::Result<Vec<bool>> {
        let mut sql = String::from("SELECT CONCAT(''");
        for id in ids {
            // Writing into a string cannot fail.
            let _ = write!(sql, ",IS_USED_LOCK('{MARK}{}')<=>{}", id.hold, id.session);
        }
        sql.push(')');
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await?;
        let held: Option<Vec<u8>> = row.try_get_unchecked(0)?;
        Ok(held.unwrap_or_default().into_iter().map(|held| held == b'1').collect())
    }

    async fn is_locked(&self, conn: &mut MySqlConnection, table: &RowTable, key: &RowKey) -> sqlx::Result<bool> {
        let (name, column) = (table::quoted(table), &table.column);
        let sql = format!("SELECT 1 FROM {name} WHERE `{column}` = ? FOR UPDATE NOWAIT");
        match bound_key(sqlx::query(AssertSqlSafe(sql)), key).fetch_optional(conn).await {
            Ok(_) => Ok(false),
            Err(error) if matches!(number(&error), Some(1205 | 3572)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn was_committed(&self, _: &mut MySqlConnection, _: &RowId) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    async fn kill(&self, conn: &mut MySqlConnection, session: i64) -> sqlx::Result<()> {
        match sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(conn).await {
            // It has ended already.
            Err(error) if number(&error) == Some(1094) => Ok(()),
            killed => killed.map(drop),
        }
    }
}

/// Refuses a binary log of statements: with it, the server rejects each change in a transaction at READ COMMITTED. Only
/// an administrator may set another format.
async fn refuse_log_of_statements(conn: &mut MySqlConnection) -> Result<()> {
    let sql = "SELECT CAST(@@GLOBAL.log_bin AND @@SESSION.binlog_format = 'STATEMENT' AS SIGNED)";
    match sqlx::raw_sql(sql).fetch_one(conn).await.and_then(|row| row.try_get_unchecked::<i64, _>(0)).map_err(fault)? {
        0 => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Unsupported { need: "binlog_format=ROW or MIXED".into() },
            "with binlog_format=STATEMENT the server refuses every change in the transaction of a row lock (error 1665): set \
             binlog_format=ROW, or use way=lease",
        )),
    }
}

/// Locks the row and marks the hold, in one statement.
async fn locked(conn: &mut MySqlConnection, ask: RowAsk<'_>, wait: Option<u64>) -> sqlx::Result<Taken> {
    let (name, column, key) = (table::quoted(ask.table), &ask.table.column, literal(ask.key));
    let strength = if ask.is_shared { "/*M! LOCK IN SHARE MODE */ /*!80000 FOR SHARE */" } else { "FOR UPDATE" };
    let (limit, alone, patience) = match wait {
        None => (String::new(), AT_ONCE, "/*!80000 NOWAIT */".to_owned()),
        // The other one has a setting for it.
        Some(seconds) => {
            let silence = whole_seconds(ask.silence);
            (
                format!("SET SESSION {ROW_WAIT} = {seconds}, wait_timeout = {silence}; "),
                "SELECT",
                format!("/*M!100301 WAIT {seconds} */"),
            )
        }
    };
    let sql = format!(
        "{limit}START TRANSACTION READ WRITE; SAVEPOINT dlock_hold; \
         {alone} CAST(`{column}` AS CHAR CHARACTER SET utf8mb4), CAST(GET_LOCK('{MARK}{}', 0) AS SIGNED) FROM {name} \
         WHERE `{column}` = {key} {strength} {patience}",
        ask.hold
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *conn).await?;
    let Some(row) = rows.first() else { return Ok(Taken::Missing) };
    let (found, is_marked): (Vec<u8>, Option<i64>) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
    if is_marked != Some(1) {
        return Err(sqlx::Error::Protocol("the mark of a fresh hold was not free".into()));
    }
    if found != ask.key.text().as_bytes() {
        // It differs in case, accents or trailing blanks, which the column's collation does not see.
        sqlx::raw_sql(AssertSqlSafe(format!("DO RELEASE_LOCK('{MARK}{}')", ask.hold))).execute(conn).await?;
        return Ok(Taken::Missing);
    }
    Ok(Taken::Row(1))
}

/// Sets a limit of the body's waits. The server does not see that its client has gone while a statement waits, so no wait is longer
/// than a silent session may live.
fn at_most(limit: &str, ttl: Duration) -> String {
    format!("{limit} = CAST(LEAST(@@GLOBAL.{limit}, {}) AS UNSIGNED)", whole_seconds(ttl))
}

fn unmark(id: &RowId) -> String {
    format!("DO RELEASE_LOCK('{MARK}{}')", id.hold)
}

/// The key in the text of a statement.
fn literal(key: &RowKey) -> String {
    match key {
        RowKey::Name(name) => format!("x'{}'", hex(name.as_bytes())),
        RowKey::Number(number) => number.to_string(),
        RowKey::Text(text) | RowKey::Uuid(text) => format!("_utf8mb4 x'{}'", hex(text.as_bytes())),
    }
}

/// A text of the user's is compared by its column's collation, by which its index is in order.
fn bound_key<'q>(query: Bound<'q>, key: &'q RowKey) -> Bound<'q> {
    match key {
        RowKey::Name(name) => query.bind(name.as_bytes()),
        RowKey::Number(number) => query.bind(*number),
        RowKey::Text(text) | RowKey::Uuid(text) => query.bind(text.as_str()),
    }
}

/// Never shorter than asked for.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).min(1_000_000)
}
