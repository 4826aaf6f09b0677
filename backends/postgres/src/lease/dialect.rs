//! How PostgreSQL runs the statements of a lease row.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dlock_contract::{Error, Health, Result};
use dlock_sql::{
    Answer, Cell, Dialect, MarkedSession, Refusal, SessionActivity, SessionMark, ShedlockTable, ShedlockWords,
    Statement, Value, WaitQueues, Words, check_tables, prepare_tables,
};
use dlock_store::Clock;
use futures::{FutureExt, TryStreamExt};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Connection, Either, Executor, Row, TypeInfo, ValueRef};

use crate::lease::pooler::{self, Path};
use crate::lease::queue::AdvisoryLocks;
use crate::lease::tables::{LEASES, Tables};
use crate::lease::{shedlock, tables};
use crate::server::fault::{fault, refusal, state};
use crate::server::{Server, writable_server};

/// The time at which the statement began, which is the same everywhere in it. `now()` would be the start of the transaction.
const NOW: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

/// If another session keeps a row locked, a statement fails after a second. A stricter isolation level would refuse a statement
/// that has waited for a row. Without a commit to disk, a restart of the server could lose a lock. With quotes around each name, dlock
/// would not know its own tables again.
const SET_UP: &str = "\
    SET lock_timeout = '1s'; SET statement_timeout = '5s'; SET default_transaction_isolation = 'read committed'; \
    SET quote_all_identifiers = off; \
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The settings for one transaction, behind a pooler that gives each transaction another session. If the network keeps
/// the commit, the server ends the transaction, so that its row does not stay locked.
const SET_UP_ONCE: &str = "\
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL quote_all_identifiers = off; SET LOCAL idle_in_transaction_session_timeout = '5s'; \
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

/// PostgreSQL, for [`LeaseRow`](dlock_sql::LeaseRow).
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    pub(crate) clock: Clock,
    words: Words,
    queues: AdvisoryLocks,
    /// Settings stay in a session of its own. Until it is known to be one they are not made: in a pooler's session they would
    /// affect other programs.
    path: Mutex<Path>,
    shedlock: Option<ShedlockWords>,
}

impl Postgres {
    pub(crate) fn new(server: Server, clock: &Clock) -> Self {
        let words = Words {
            kind: "postgres",
            tables: server.tables.clone(),
            now: NOW,
            div: "/",
            nobody: "''::bytea",
            draw: ("", ""),
            tells: " RETURNING token",
            unless_there: " ON CONFLICT DO NOTHING",
            by_name: "",
            numbered: true,
        };
        let queues = AdvisoryLocks::of(&words);
        Self { server, clock: clock.clone(), words, queues, path: Mutex::new(Path::Unknown), shedlock: None }
    }

    /// Locks in ShedLock's table of this name, if there is one.
    pub(crate) fn in_shedlock(mut self, table: Option<ShedlockTable>) -> Self {
        self.shedlock = table.map(shedlock::words);
        self
    }

    /// Opens a connection without any settings of dlock.
    pub(crate) async fn connect_directly(&self) -> Result<PgConnection> {
        Ok(self.server.connect(&self.clock).await?.0)
    }

    /// Whether a connection is known to have a session of its own.
    pub(crate) fn keeps_session(&self) -> bool {
        self.path().keeps_session()
    }

    /// Finds out whether a connection has a session of its own.
    pub(crate) async fn find_path(&self, conn: &mut PgConnection) -> Result<bool> {
        let path = pooler::find(&self.server, &self.clock, conn).await?;
        *self.path() = path;
        Ok(path.keeps_session())
    }

    /// Adds to a health report whether a pooler is between dlock and the server, and what that costs.
    pub(crate) fn report_path(&self, health: Health) -> Health {
        match *self.path() {
            Path::SessionPooler => health.role("primary, behind a pooler that gives each connection its own session"),
            Path::TransactionPooler | Path::Unknown => health.finding(
                "a pooler gives each transaction another session, so each request is a transaction of four messages, and \
                 waiters poll instead of waiting in a queue of the server: connect to the server itself for speed",
            ),
            Path::Direct => health,
        }
    }

    fn path(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialect for Postgres {
    type Conn = PgConnection;

    fn words(&self) -> &Words {
        &self.words
    }

    fn host(&self) -> String {
        format!("{:?}", self.server)
    }

    fn shedlock(&self) -> Option<&ShedlockWords> {
        self.shedlock.as_ref()
    }

    async fn connect(&self) -> Result<(PgConnection, String)> {
        let (mut conn, server) = self.server.connect(&self.clock).await?;
        if self.keeps_session() {
            set_up(&mut conn).await?;
        }
        Ok((conn, server))
    }

    async fn prepare(&self, conn: &mut PgConnection) -> Result<String> {
        if self.find_path(conn).await? {
            set_up(conn).await?;
        }
        prepare_tables(Tables { conn, names: &self.words.tables }, &LEASES).await?;
        match &self.shedlock {
            Some(shed) => shedlock::prepare(conn, &shed.table).await,
            None => Ok(String::new()),
        }
    }

    async fn mark(&self, conn: &mut PgConnection) -> sqlx::Result<Option<SessionMark>> {
        if !self.keeps_session() {
            return Ok(None);
        }
        let sql = "SELECT pg_backend_pid()::bigint, extract(epoch FROM backend_start)::text \
                   FROM pg_stat_get_activity(pg_backend_pid())";
        let row = sqlx::raw_sql(sql).fetch_one(conn).await?;
        Ok(Some(SessionMark { number: row.try_get(0)?, proof: row.try_get(1)? }))
    }

    async fn end_marked(&self, conn: &mut PgConnection, session: &SessionMark) -> sqlx::Result<MarkedSession> {
        // Of sessions of other accounts, an account without rights sees the number alone.
        let sql = "SELECT backend_start IS NULL, \
                   CASE WHEN extract(epoch FROM backend_start)::text = $2 THEN pg_terminate_backend(pid) END IS NOT NULL \
                   FROM pg_stat_get_activity($1::bigint::int)";
        let ending = sqlx::query(sql).bind(session.number).bind(&session.proof);
        let row = match ending.fetch_optional(conn).await {
            Ok(row) => row,
            Err(error) if state(&error).as_deref() == Some("42501") => return Ok(MarkedSession::OfAnotherAccount),
            Err(error) => return Err(error),
        };
        let Some(row) = row else { return Ok(MarkedSession::Gone) };
        Ok(match (row.try_get(0)?, row.try_get(1)?) {
            (true, _) => MarkedSession::OfAnotherAccount,
            (false, true) => MarkedSession::Ends,
            (false, false) => MarkedSession::Gone,
        })
    }

    async fn activity(&self, conn: &mut PgConnection, session: i64) -> sqlx::Result<Option<SessionActivity>> {
        // Without `track_activities`, and for sessions of other accounts, the server shows no activity.
        let sql = "SELECT state IN ('active', 'fastpath function call'), (extract(epoch FROM state_change) * 1000000)::bigint \
                   FROM pg_stat_activity WHERE pid = $1 AND state <> 'disabled' AND state_change IS NOT NULL";
        let Some(row) = sqlx::query(sql).bind(session).fetch_optional(conn).await? else { return Ok(None) };
        let (runs, since) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Some(if runs { SessionActivity::Runs } else { SessionActivity::Idle(since) }))
    }

    async fn run(&self, conn: &mut PgConnection, statement: &Statement, values: &[Value<'_>]) -> sqlx::Result<Answer> {
        let mut query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
        for value in values {
            query = bound(query, *value);
        }
        if self.keeps_session() {
            return answer(conn, query).await;
        }
        // A transaction has one session, even behind a pooler.
        let mut transaction = conn.begin().await?;
        sqlx::raw_sql(SET_UP_ONCE).execute(&mut *transaction).await?;
        let answer = answer(&mut transaction, query.persistent(false)).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    fn wait_queues(&self) -> Option<&dyn WaitQueues<PgConnection>> {
        // A Java node does not announce that it has freed a lock, so waiters ask again.
        (self.keeps_session() && self.shedlock.is_none()).then_some(&self.queues as &dyn WaitQueues<_>)
    }

    async fn ping(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        conn.ping().await
    }

    async fn health(&self, conn: &mut PgConnection) -> Result<Health> {
        writable_server(conn).await?;
        check_tables(Tables { conn, names: &self.words.tables }, &LEASES).await?;
        let health = self.report_path(tables::health(conn, &self.words.tables).await?);
        let Some(shed) = &self.shedlock else { return Ok(health) };
        shedlock::check(conn, &shed.table).await?;
        shedlock::told_in(health, conn, &shed.table).await
    }

    async fn close(&self, conn: PgConnection) {
        conn.close().map(drop).await
    }

    fn refusal(&self, error: &sqlx::Error) -> Refusal {
        refusal(error)
    }

    fn fault(&self, error: sqlx::Error) -> Error {
        fault(error)
    }
}

pub(crate) async fn set_up(conn: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(SET_UP).execute(conn).await.map(drop).map_err(fault)
}

type Bound<'q> = Query<'q, sqlx::Postgres, PgArguments>;

fn bound<'q>(query: Bound<'q>, value: Value<'q>) -> Bound<'q> {
    match value {
        Value::Int(number) => query.bind(number),
        Value::Maybe(number) => query.bind(number),
        Value::Text(text) => query.bind(text),
        Value::MaybeText(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
    }
}

async fn answer(conn: &mut PgConnection, query: Bound<'_>) -> sqlx::Result<Answer> {
    let mut answer = Answer::default();
    let mut found = conn.fetch_many(query);
    while let Some(found) = found.try_next().await? {
        match found {
            Either::Left(done) => answer.changed += done.rows_affected(),
            Either::Right(row) => answer.rows.push(cells(&row)?),
        }
    }
    Ok(answer)
}

fn cells(row: &PgRow) -> sqlx::Result<Vec<Cell>> {
    let cell = |index: usize| {
        if row.try_get_raw(index)?.is_null() {
            return Ok(Cell::Null);
        }
        match row.column(index).type_info().name() {
            "INT8" => row.try_get(index).map(Cell::Int),
            "INT4" => row.try_get(index).map(|number: i32| Cell::Int(number.into())),
            "BOOL" => row.try_get(index).map(|truth: bool| Cell::Int(truth.into())),
            "BYTEA" => row.try_get(index).map(Cell::Bytes),
            _ => row.try_get(index).map(|text: String| Cell::Bytes(text.into_bytes())),
        }
    };
    (0..row.len()).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use dlock_store::Address;
    use dlock_testkit::servers::shared;

    use super::*;
    use crate::server::FORM;

    /// After a restart of the server, or of its container, the number of one of our sessions may be a stranger's.
    #[tokio::test]
    async fn a_stranger_with_the_number_of_a_session_of_ours_is_not_ended() {
        let url = shared().postgres().unwrap();
        let server = Server::of(&Address::parse(&url, &FORM).unwrap()).unwrap();
        let dialect = Postgres::new(server, &Clock::system());
        let (mut ours, mut stranger) =
            (dialect.connect_directly().await.unwrap(), dialect.connect_directly().await.unwrap());
        assert!(dialect.find_path(&mut ours).await.unwrap());
        let present = dialect.mark(&mut stranger).await.unwrap().unwrap();
        let before = dialect.mark(&mut ours).await.unwrap().unwrap().proof;
        assert_ne!(before, present.proof);
        let earlier = SessionMark { proof: before, ..present.clone() };
        assert_eq!(dialect.end_marked(&mut ours, &earlier).await.unwrap(), MarkedSession::Gone);
        stranger.ping().await.expect("a stranger's session was ended");
        // With its own proof it would be.
        assert_eq!(dialect.end_marked(&mut ours, &present).await.unwrap(), MarkedSession::Ends);
    }
}
