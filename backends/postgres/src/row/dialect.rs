//! How PostgreSQL does row locks.
//!
//! A transaction that locks a row has a number, and every account may ask for its outcome. So another connection can
//! see whether a hold lives, without a right and without touching the row.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use dlock_sql::{
    Committed, Dialect, NamedDialect, QueueName, RowAsk, RowDialect, RowId, RowKey, RowKind, RowTable, RowWords, Taken,
    check_tables, hex, prepare_tables,
};
use dlock_store::Clock;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use super::table;
use crate::lease::dialect::Postgres;
use crate::lease::tables::{self, Tables, row_locks};
use crate::server::fault::{fault, state};
use crate::server::pieces::{self, FREE_TURN};
use crate::server::{refuse_endless_silence, writable_server};

/// A number that the server has not given yet, as after the data was put back from a copy, would be an error.
const IS_HELD: &str = "\
    (CASE WHEN {xact} > 0 AND {xact}::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) \
        THEN COALESCE(pg_xact_status({xact}::text::xid8) = 'in progress', false) ELSE false END)";

/// A snapshot ends with the newest transaction that has ended, which may be older.
const LIVES: &str = "pg_xact_status({xact}::text::xid8) = 'in progress'";

/// The body's statements run here, so no limit of dlock's is set, and none of the server's own stays. Without the commit on the
/// disk a restart could forget what the body has done. What the body does after it has ended the transaction may not write: it
/// would be final without the row's lock.
const SET_UP: &str = "\
    SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = on; \
    SELECT set_config(name, '0', false) FROM pg_settings \
        WHERE name IN ('transaction_timeout', 'statement_timeout', 'lock_timeout'); \
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The server sees by it that a caller has gone, also while a statement runs. Not every system can do that.
const CHECK_CLIENT: &str = "SET client_connection_check_interval = '250ms'";

/// A waiter's session may be silent for a shorter time. A rollback takes the later setting back with the rest.
const LAST_AGAIN: &str = "SELECT set_config('idle_session_timeout', current_setting('dlock.idle', true), false)";

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

const SESSION_ID: &str = "SELECT pg_backend_pid()::bigint";

impl RowDialect for Postgres {
    fn row_words(&self) -> RowWords {
        RowWords {
            on_conflict: "ON CONFLICT (k, part) DO UPDATE SET",
            is_held: IS_HELD,
            lives: LIVES,
            from_nothing: "",
            any: "bool_or",
            longest_ttl: self.named_words().longest_ttl,
        }
    }

    async fn connect_row(&self) -> Result<(PgConnection, i64, String)> {
        let (mut conn, server) = self.connect().await?;
        sqlx::raw_sql(SET_UP).execute(&mut conn).await.map_err(fault)?;
        let _ = sqlx::raw_sql(CHECK_CLIENT).execute(&mut conn).await;
        let number =
            sqlx::raw_sql(SESSION_ID).fetch_one(&mut conn).await.and_then(|row| row.try_get(0)).map_err(fault)?;
        std::mem::forget(conn.begin().await.map_err(fault)?);
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.map_err(fault)?;
        Ok((conn, number, server))
    }

    async fn prepare_row(&self, conn: &mut PgConnection, table: &RowTable) -> Result<(RowKind, String)> {
        if !self.find_path(conn).await? {
            return Err(Error::new(
                ErrorKind::Unsupported { need: "a connection that keeps its session".into() },
                "a pooler before the server gives each transaction another session, so a row lock cannot be watched: connect \
                 to the server itself, or use way=lease",
            ));
        }
        refuse_endless_silence(conn).await?;
        crate::lease::dialect::set_up(conn).await?;
        prepare_tables(Tables { conn, names: &self.words().tables }, &row_locks(table.is_own)).await?;
        table::kind_of(conn, table).await
    }

    async fn row_health(&self, conn: &mut PgConnection, table: &RowTable) -> Result<Health> {
        writable_server(conn).await?;
        check_tables(Tables { conn, names: &self.words().tables }, &row_locks(table.is_own)).await?;
        table::kind_of(conn, table).await?;
        Ok(self.report_path(tables::health(conn, &self.words().tables).await?))
    }

    async fn end_row_after(&self, conn: &mut PgConnection, silence: Duration) -> Result<()> {
        self.end_after(conn, silence).await?;
        let millis = silence.as_millis();
        let set = format!("SET idle_in_transaction_session_timeout = {millis}; SET dlock.idle = '{millis}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(conn).await.map(drop).map_err(fault)
    }

    async fn take_row(&self, conn: &mut PgConnection, ask: RowAsk<'_>) -> sqlx::Result<Taken> {
        match locked(conn, &self.clock, ask).await {
            Err(error) if state(&error).as_deref() == Some("55P03") => Ok(Taken::Busy),
            taken => taken,
        }
    }

    async fn end_wait(&self, conn: &mut PgConnection, taken: Taken, ttl: Duration) -> sqlx::Result<()> {
        // The body's statements have no limit, neither ours nor the account's. A rollback takes it back by itself.
        match taken {
            Taken::Row(_) => {
                let set = format!(
                    "SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = {ttl}; \
                     SET idle_session_timeout = {ttl}",
                    ttl = ttl.as_millis()
                );
                sqlx::raw_sql(AssertSqlSafe(set)).execute(conn).await.map(drop)
            }
            Taken::Busy | Taken::Missing => Ok(()),
        }
    }

    async fn is_in(&self, conn: &mut PgConnection, id: &RowId) -> sqlx::Result<bool> {
        let sql = "SELECT COALESCE(pg_current_xact_id_if_assigned() = $1::text::xid8, false)";
        let asked = sqlx::query(sql).bind(id.transaction.to_string()).fetch_one(conn).await;
        match asked.and_then(|row| row.try_get(0)) {
            // An error of a statement has undone the transaction, and its locks are gone already.
            Err(error) if state(&error).as_deref() == Some("25P02") => Ok(false),
            answer => answer,
        }
    }

    fn is_elsewhere(&self, error: &sqlx::Error) -> bool {
        state(error).as_deref() == Some("25006")
    }

    async fn commit(&self, conn: &mut PgConnection, _: &RowId) -> sqlx::Result<Committed> {
        sqlx::raw_sql("COMMIT").execute(conn).await.map(|_| Committed::Clean)
    }

    async fn undo(&self, conn: &mut PgConnection, id: &RowId) -> sqlx::Result<bool> {
        let is_in = format!("COALESCE(pg_current_xact_id_if_assigned() = '{}'::xid8, false)", id.transaction);
        let sql = AssertSqlSafe(format!("SELECT {is_in}; ROLLBACK; {LAST_AGAIN}"));
        match sqlx::raw_sql(sql).fetch_all(&mut *conn).await {
            Ok(rows) => rows.first().map_or(Ok(false), |row| row.try_get(0)),
            // The transaction was undone before, and the server has stopped there.
            Err(error) if state(&error).as_deref() == Some("25P02") => self.rollback(conn, id).await.map(|()| false),
            Err(error) => Err(error),
        }
    }

    async fn rollback(&self, conn: &mut PgConnection, id: &RowId) -> sqlx::Result<()> {
        // A request that got no row may have the turn, which does not end with the transaction.
        let turn = if id.transaction == 0 { FREE_TURN } else { "" };
        sqlx::raw_sql(AssertSqlSafe(format!("ROLLBACK; {LAST_AGAIN}; {turn}"))).execute(conn).await.map(drop)
    }

    async fn are_held(&self, conn: &mut PgConnection, ids: &[RowId]) -> sqlx::Result<Vec<bool>> {
        let numbers: Vec<_> = ids.iter().map(|id| id.transaction).collect();
        let is_held = IS_HELD.replace("{xact}", "xact");
        let sql =
            format!("SELECT {is_held} FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (xact, place) ORDER BY place");
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(numbers).fetch_all(conn).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// A transaction keeps its locks until it ends, so its number has said all.
    async fn is_locked(&self, _: &mut PgConnection, _: &RowTable, _: &RowKey) -> sqlx::Result<bool> {
        Ok(true)
    }

    async fn was_committed(&self, conn: &mut PgConnection, id: &RowId) -> sqlx::Result<Option<bool>> {
        let asked = sqlx::query("SELECT pg_xact_status($1::text::xid8)").bind(id.transaction.to_string());
        let status: Option<String> = asked.fetch_one(conn).await?.try_get(0)?;
        Ok(match status.as_deref() {
            Some("committed") => Some(true),
            Some("aborted") => Some(false),
            _ => None,
        })
    }

    async fn kill(&self, conn: &mut PgConnection, session: i64) -> sqlx::Result<()> {
        sqlx::query("SELECT pg_terminate_backend($1::bigint::int)").bind(session).execute(conn).await.map(drop)
    }
}

async fn locked(conn: &mut PgConnection, clock: &Clock, ask: RowAsk<'_>) -> sqlx::Result<Taken> {
    let (name, column, key) = (table::quoted(ask.table), &ask.table.column, literal(ask.key));
    let (strength, shared) = if ask.is_shared { ("SHARE", "_shared") } else { ("UPDATE", "") };
    // The server gives a row to readers also while a writer waits for it, but not this lock: without it, readers that overlap
    // would keep every writer out.
    let turn = format!("SELECT pg_advisory_lock{shared}({})", QueueName::of(&name, &ask.key.text()).number());
    let lock = format!(
        "SELECT \"{column}\"::text, pg_current_xact_id()::text::bigint FROM {name} WHERE \"{column}\" = {key} FOR {strength}"
    );
    let rows = match ask.wait.filter(|wait| wait.as_millis() > 0) {
        None => {
            // The shortest limit. The body has none.
            let sql = format!(
                "{BEGIN}; SET LOCAL lock_timeout = 1; {turn}; SET LOCAL lock_timeout = 0; {lock} NOWAIT; {FREE_TURN}"
            );
            sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?
        }
        Some(time) => {
            let (end, undo) = (FREE_TURN.to_owned(), String::new());
            let wait = pieces::Wait { turn, begin: BEGIN, lock, end, undo, time, silence: ask.silence };
            pieces::wait(conn, clock, &wait).await?
        }
    };
    // The other answers have one column.
    let Some(row) = rows.iter().find(|row| row.len() == 2) else { return Ok(Taken::Missing) };
    let (found, transaction): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    // A column's collation may not see case, accents or trailing blanks.
    Ok(if found == ask.key.text() { Taken::Row(transaction) } else { Taken::Missing })
}

/// The key in the text of a statement. The server knows the value when it plans, so it uses the index.
fn literal(key: &RowKey) -> String {
    let text = |text: &str| format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex(text.as_bytes()));
    match key {
        RowKey::Number(number) => format!("'{number}'::bigint"),
        RowKey::Name(name) | RowKey::Text(name) => text(name),
        RowKey::Uuid(uuid) => format!("{}::uuid", text(uuid)),
    }
}
