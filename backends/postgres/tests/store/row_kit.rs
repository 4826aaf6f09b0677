//! Row locks in a database of PostgreSQL.

use dlock::{Clock, Result};
use dlock_postgres::Postgres;
use dlock_sql::{LeaseRow, RowLock};
use sqlx::Executor;

pub(crate) use dlock::postgres::{RowTransaction, transaction};

pub(crate) use crate::kit::Database;

pub(crate) type Store = RowLock<Postgres>;

pub(crate) type Client = sqlx::PgConnection;

/// The tables, as the shipped files say.
pub(crate) const MIGRATIONS: [&str; 3] = [
    include_str!("../../migrations/20261123000003_dlock_meta.sql"),
    include_str!("../../migrations/20261125000001_dlock_rows.sql"),
    include_str!("../../migrations/20261125000002_dlock_row_keys.sql"),
];

/// Whether a statement can end the transaction and the session with it.
pub(crate) const CAN_RELEASE: bool = false;

/// A statement by which the other transactions of a session may write.
pub(crate) const MAKE_WRITABLE: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE";

/// A statement that takes so many seconds.
pub(crate) const SLEEP: &str = "SELECT pg_sleep($)";
/// The session that runs it.
pub(crate) const SESSION: &str = "SELECT pg_backend_pid()::bigint";

/// Settings of a body's session, and their values in every database.
pub(crate) const BODY_SEES: (&str, &str) = (
    "SELECT current_setting('transaction_isolation') || ', ' || current_setting('lock_timeout') || ', ' || \
         current_setting('statement_timeout')",
    "read committed, 0, 0",
);

/// Whether an error of a statement undoes the whole transaction, and frees the row.
pub(crate) const ERRORS_UNDO_ALL: bool = true;

pub(crate) const DROP_INDEX: &str = "DROP INDEX only_one";

/// Tables with too little of a unique index, or keys that the server pads.
pub(crate) const UNLOCKABLE: [&str; 2] = [
    "CREATE TABLE padded (id CHAR(9) PRIMARY KEY)",
    "CREATE TABLE partial (id BIGINT); CREATE UNIQUE INDEX ON partial (id) WHERE id > 0",
];

pub(crate) async fn open(url: &str) -> Result<Store> {
    open_by(url, &Clock::system()).await
}

pub(crate) async fn open_by(url: &str, clock: &Clock) -> Result<Store> {
    let url = if url.contains("way=row") { url.to_owned() } else { format!("{url}?way=row") };
    dlock_postgres::row::open(&url, clock).await
}

pub(crate) async fn lease(url: &str) -> LeaseRow<Postgres> {
    dlock_postgres::open(url, &Clock::system()).await.unwrap()
}

pub(crate) fn is_deadlock(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "40P01")
}

/// Of two sessions that wait for each other, PostgreSQL ends the one that looks first, `deadlock_timeout` after its wait began. This
/// one never looks.
pub(crate) async fn finds_no_deadlock(conn: &mut Client) {
    conn.execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
}

/// How many sessions wait for a row of dlock's. A request that does not wait may be there for a millisecond.
pub(crate) async fn waiting(database: &Database) -> usize {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
               AND query NOT LIKE '%NOWAIT%'";
    database.lines(sql).await.len()
}

/// How many transactions stores have in this database.
pub(crate) async fn open_transactions(database: &Database) -> usize {
    let sql = "SELECT pid FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name = 'dlock' AND xact_start IS NOT NULL";
    database.lines(sql).await.len()
}

pub(crate) async fn columns(database: &Database, table: &str) -> Vec<String> {
    let sql = "SELECT column_name || ' ' || data_type FROM information_schema.columns WHERE table_name = '$' \
               ORDER BY ordinal_position";
    database.lines(&sql.replace('$', table)).await
}

/// Waits until a statement with this text waits for a row.
pub(crate) async fn waiting_for(database: &Database, text: &str) {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%{text}%'"
    );
    let waits = async || !database.lines(&sql).await.is_empty();
    dlock_testkit::wait_until("it waits for a row", waits).await.unwrap();
}

/// How many sessions run a statement with this text.
pub(crate) async fn running(database: &Database, text: &str) -> usize {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity \
         WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%{text}%'"
    );
    database.lines(&sql).await.len()
}

/// Waits until this statement runs.
pub(crate) async fn runs(database: &Database, statement: &str) {
    let runs = async || running(database, statement).await > 0;
    dlock_testkit::wait_until("the statement runs", runs).await.unwrap();
}

/// The transaction of a hold that no engine knows.
pub(crate) fn transaction_of(hold: &dlock_contract::Hold) -> Result<RowTransaction> {
    dlock_postgres::row::transaction(hold.shared_session().unwrap())
}
