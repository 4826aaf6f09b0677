//! How MySQL and MariaDB run the statements of a lease row.

use dlock_contract::{Error, Health, Result};
use dlock_sql::{
    Answer, Cell, Dialect, MarkedSession, Refusal, SessionActivity, SessionMark, ShedlockTable, ShedlockWords,
    Statement, TableNames, Value, WaitQueues, Words, check_tables, prepare_tables,
};
use dlock_store::Clock;
use futures::{FutureExt, TryStreamExt};
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Connection, Either, Executor, Row, TypeInfo, ValueRef};

use super::queue::NamedLocks;
use super::tables::{LEASES, Tables};
use super::{shedlock, tables};
use crate::server::fault::{fault, has_ended, number};
use crate::server::{Server, writable_server};

/// The time is UTC, so it does not depend on the session's time zone. It is the start of the statement. The answer to an
/// update has the last insert id, so reading the token needs no second request.
fn words(tables: TableNames) -> Words {
    Words {
        kind: "mysql",
        tables,
        now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        div: "DIV",
        nobody: "''",
        draw: ("LAST_INSERT_ID(", ")"),
        tells: "",
        unless_there: "",
        by_name: " FORCE INDEX (PRIMARY)",
        numbered: false,
    }
}

/// Each statement is a transaction, whatever the server's default is. If another session keeps a row or a table locked, the
/// statement fails after a second; otherwise the server could execute it after its caller has given up. A value that is too
/// long is an error and is not cut. With another `completion_type` a commit or rollback begins the next transaction: renewals
/// would stay in it, and others would see none of them. The last three would let a sweep or a listing miss rows.
const SET_UP: &str = "\
    SET SESSION autocommit = 1, completion_type = NO_CHAIN, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, \
        sql_mode = 'STRICT_ALL_TABLES', sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1";

/// The activity of a session, and since when. MySQL answers a query of its views with an error while anybody runs a statement with bytes
/// that are no text, so there it is all sessions of the account.
const ACTIVITY: &str = "\
    SELECT UNIX_TIMESTAMP(); \
    /*M!100301 SELECT ID, COMMAND, QUERY_ID FROM information_schema.PROCESSLIST WHERE ID = {session} */ \
    /*!80000 SHOW PROCESSLIST */; \
    SELECT UNIX_TIMESTAMP()";

/// MySQL and MariaDB, for [`LeaseRow`](dlock_sql::LeaseRow).
#[derive(Debug)]
pub struct MySql {
    server: Server,
    clock: Clock,
    words: Words,
    queues: NamedLocks,
    shedlock: Option<ShedlockWords>,
}

impl MySql {
    pub(crate) fn new(server: Server, clock: &Clock) -> Self {
        let words = words(server.tables.clone());
        let queues = NamedLocks { tables: server.tables.clone() };
        Self { server, clock: clock.clone(), words, queues, shedlock: None }
    }

    /// Locks in ShedLock's table of this name, if there is one.
    pub(crate) fn in_shedlock(mut self, table: Option<ShedlockTable>) -> Self {
        self.shedlock = table.map(shedlock::words);
        self
    }
}

impl Dialect for MySql {
    type Conn = MySqlConnection;

    fn words(&self) -> &Words {
        &self.words
    }

    fn host(&self) -> String {
        format!("{:?}", self.server)
    }

    fn shedlock(&self) -> Option<&ShedlockWords> {
        self.shedlock.as_ref()
    }

    async fn connect(&self) -> Result<(MySqlConnection, String)> {
        self.server.connect(&self.clock, SET_UP).await
    }

    async fn prepare(&self, conn: &mut MySqlConnection) -> Result<String> {
        prepare_tables(Tables { conn, names: &self.words.tables }, &LEASES).await?;
        match &self.shedlock {
            Some(shed) => shedlock::prepare(conn, &shed.table).await,
            None => Ok(String::new()),
        }
    }

    /// A named lock that it has.
    async fn mark(&self, conn: &mut MySqlConnection) -> sqlx::Result<Option<SessionMark>> {
        let proof = format!("dls{:032x}", fastrand::u128(..));
        let sql = format!("SELECT CAST(CONNECTION_ID() AS SIGNED), CAST(GET_LOCK('{proof}', 0) AS SIGNED)");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await?;
        Ok(Some(SessionMark { number: row.try_get_unchecked(0)?, proof }))
    }

    /// The server gives a number once, until it is restarted, and this connection does not outlive that.
    async fn end_marked(&self, conn: &mut MySqlConnection, session: &SessionMark) -> sqlx::Result<MarkedSession> {
        let sql = format!("SELECT CAST(IS_USED_LOCK('{}') AS SIGNED)", session.proof);
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *conn).await?;
        if row.try_get_unchecked::<Option<i64>, _>(0)? != Some(session.number) {
            return Ok(MarkedSession::Gone);
        }
        match sqlx::raw_sql(AssertSqlSafe(format!("KILL {}", session.number))).execute(conn).await {
            Ok(_) => Ok(MarkedSession::Ends),
            Err(error) => match number(&error) {
                // It has ended already.
                Some(1094) => Ok(MarkedSession::Ends),
                Some(1095) => Ok(MarkedSession::OfAnotherAccount),
                _ => Err(error),
            },
        }
    }

    async fn activity(&self, conn: &mut MySqlConnection, session: i64) -> sqlx::Result<Option<SessionActivity>> {
        let sql = ACTIVITY.replace("{session}", &session.to_string());
        let (mut times, mut seen) = (Vec::<i64>::new(), None);
        for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await? {
            let first = row.try_get_unchecked(0)?;
            if row.len() == 1 {
                times.push(first);
            } else if first == session {
                seen = Some(row);
            }
        }
        let Some(row) = seen else { return Ok(None) };
        let counts_statements = row.len() == 3;
        let command: String = row.try_get_unchecked(if counts_statements { 1 } else { 4 })?;
        if command != "Sleep" {
            return Ok(Some(SessionActivity::Runs));
        }
        Ok(match times[..] {
            _ if counts_statements => {
                Some(SessionActivity::Idle(row.try_get_unchecked::<i64, _>(2)?.saturating_mul(2)))
            }
            // The second in which its last statement began, or the one beside it: the server has two ways to round.
            [before, after] if before == after => {
                Some(SessionActivity::Idle(before - row.try_get_unchecked::<i64, _>(5)?))
            }
            _ => None,
        })
    }

    async fn run(
        &self,
        conn: &mut MySqlConnection,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> sqlx::Result<Answer> {
        let mut query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
        for index in &statement.order {
            query = match (values[*index], &self.shedlock) {
                // ShedLock's table compares names by their collation, which bytes do not have, so bind a text.
                (Value::Text(text), Some(_)) => query.bind(text),
                (value, _) => bound(query, value),
            };
        }
        let mut answer = Answer::default();
        let mut found = conn.fetch_many(query);
        while let Some(found) = found.try_next().await? {
            match found {
                Either::Left(done) => {
                    answer.changed += done.rows_affected();
                    answer.token = i64::try_from(done.last_insert_id()).ok();
                }
                Either::Right(row) => answer.rows.push(cells(&row)?),
            }
        }
        Ok(answer)
    }

    fn wait_queues(&self) -> Option<&dyn WaitQueues<MySqlConnection>> {
        // A Java node does not announce that it has freed a lock, so waiters ask again.
        self.shedlock.is_none().then_some(&self.queues as &dyn WaitQueues<_>)
    }

    async fn ping(&self, conn: &mut MySqlConnection) -> sqlx::Result<()> {
        conn.ping().await
    }

    async fn health(&self, conn: &mut MySqlConnection) -> Result<Health> {
        writable_server(conn).await?;
        check_tables(Tables { conn, names: &self.words.tables }, &LEASES).await?;
        tables::check_writable(conn, &self.words.tables).await?;
        if let Some(shed) = &self.shedlock {
            shedlock::check(conn, &shed.table).await?;
            return shedlock::told_in(tables::health(conn, &self.words.tables).await?, conn, &shed.table).await;
        }
        tables::health(conn, &self.words.tables).await
    }

    async fn close(&self, conn: MySqlConnection) {
        conn.close().map(drop).await
    }

    fn refusal(&self, error: &sqlx::Error) -> Refusal {
        match number(error) {
            Some(1062) => Refusal::Duplicate,
            // This includes a transaction that a cluster refuses at its commit.
            Some(1020 | 1213 | 3101) => Refusal::Undone,
            Some(1205 | 3572) => Refusal::RowLocked,
            // The server is not the primary any more. The next connection looks for the primary.
            Some(1290 | 1792 | 1836) => Refusal::SessionEnded,
            _ if has_ended(error) => Refusal::SessionEnded,
            _ => Refusal::Other,
        }
    }

    fn fault(&self, error: sqlx::Error) -> Error {
        fault(error)
    }
}

pub(crate) type Bound<'q> = Query<'q, sqlx::MySql, MySqlArguments>;

/// Texts are bound as bytes: a column of characters could ignore case, accents and trailing blanks.
fn bound<'q>(query: Bound<'q>, value: Value<'q>) -> Bound<'q> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Maybe(number) => query.bind(number),
        Value::Text(text) => query.bind(text.as_bytes()),
        Value::MaybeText(text) => query.bind(text.map(str::as_bytes)),
        Value::Bytes(bytes) => query.bind(bytes),
    }
}

fn cells(row: &MySqlRow) -> sqlx::Result<Vec<Cell>> {
    let cell = |index: usize| {
        let value = row.try_get_raw(index)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        let is_number = row.column(index).type_info().name().contains("INT");
        if is_number {
            return row.try_get_unchecked(index).map(Cell::Int);
        }
        row.try_get_unchecked(index).map(Cell::Bytes)
    };
    (0..row.len()).map(cell).collect()
}
