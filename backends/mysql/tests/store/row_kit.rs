//! Row locks in a database of MySQL or MariaDB.

use dlock::{Clock, Result};
use dlock_mysql::lease::MySql;
use dlock_sql::{LeaseRow, RowLock};
use futures::future::LocalBoxFuture;
use sqlx::mysql::MySqlDatabaseError;

pub(crate) use dlock::mysql::{RowTransaction, transaction};

pub(crate) use crate::server::{Database, Kind};

pub(crate) type Store = RowLock<MySql>;

pub(crate) type Client = sqlx::MySqlConnection;

/// The tables, as the shipped files say.
pub(crate) const MIGRATIONS: [&str; 3] = [
    include_str!("../../migrations/20261123000003_dlock_meta.sql"),
    include_str!("../../migrations/20261125000001_dlock_rows.sql"),
    include_str!("../../migrations/20261125000002_dlock_row_keys.sql"),
];

/// Whether a statement can end the transaction and the session with it.
pub(crate) const CAN_RELEASE: bool = true;

/// A statement by which the other transactions of a session may write.
pub(crate) const MAKE_WRITABLE: &str = "SET SESSION TRANSACTION READ WRITE";

/// A statement that takes so many seconds.
pub(crate) const SLEEP: &str = "SELECT SLEEP($)";
/// The session that runs it.
pub(crate) const SESSION: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED)";

/// Settings of a body's session, and their values on every server: as sqlx has them.
pub(crate) const BODY_SEES: (&str, &str) =
    ("SELECT CAST(CONCAT(@@SESSION.time_zone, ' ', 'piped' || '') AS CHAR)", "+00:00 piped");

/// Whether an error of a statement undoes the whole transaction, and frees the row.
pub(crate) const ERRORS_UNDO_ALL: bool = false;

pub(crate) const DROP_INDEX: &str = "DROP INDEX only_one ON jobs";

/// Tables that have no transactions, or too little of a unique index.
pub(crate) const UNLOCKABLE: [&str; 3] = [
    "CREATE TABLE myisam (id BIGINT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE TABLE memory (id BIGINT PRIMARY KEY) ENGINE=MEMORY",
    "CREATE TABLE prefixed (id VARCHAR(40), UNIQUE (id(3)))",
];

/// Runs one case of `row_lock_cases`.
pub(crate) async fn run(kind: Kind, case: &str, body: fn(Database) -> LocalBoxFuture<'static, ()>) {
    body(Database::create(&kind.shared().unwrap(), case).await).await;
}

pub(crate) async fn open(url: &str) -> Result<Store> {
    open_by(url, &Clock::system()).await
}

pub(crate) async fn open_by(url: &str, clock: &Clock) -> Result<Store> {
    let url = if url.contains("way=row") { url.to_owned() } else { format!("{url}?way=row") };
    dlock_mysql::row::open(&url, clock).await
}

pub(crate) async fn lease(url: &str) -> LeaseRow<MySql> {
    dlock_mysql::lease::open(url, &Clock::system()).await.unwrap()
}

pub(crate) fn is_deadlock(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == 1213)
}

/// InnoDB looks for a deadlock at each wait, and ends the transaction that has changed less.
pub(crate) async fn finds_no_deadlock(_conn: &mut Client) {}

/// How many sessions wait for a row of dlock's.
pub(crate) async fn waiting(database: &Database) -> usize {
    database.running("FROM `dlock_row_keys`").await.len()
}

/// How many transactions stores have in this database. A session that is in none is not counted.
pub(crate) async fn open_transactions(database: &Database) -> usize {
    database.in_transactions().await.len()
}

pub(crate) async fn columns(database: &Database, table: &str) -> Vec<String> {
    let sql = "SELECT CONCAT(column_name, ' ', column_type) FROM information_schema.columns \
               WHERE table_schema = DATABASE() AND table_name = '$' ORDER BY ordinal_position";
    database.lines(&sql.replace('$', table)).await
}

/// Waits until a statement with this text waits for a row.
pub(crate) async fn waiting_for(database: &Database, text: &str) {
    let waits = async || database.running(text).await.iter().any(|process| !process.state.is_empty());
    dlock_testkit::wait_until("it waits for a row", waits).await.unwrap();
}

/// How many sessions run a statement with this text.
pub(crate) async fn running(database: &Database, text: &str) -> usize {
    database.running(text).await.len()
}

/// Waits until this statement runs.
pub(crate) async fn runs(database: &Database, statement: &str) {
    let runs = async || running(database, statement).await > 0;
    dlock_testkit::wait_until("the statement runs", runs).await.unwrap();
}

/// The transaction of a hold that no engine knows.
pub(crate) fn transaction_of(hold: &dlock_contract::Hold) -> Result<RowTransaction> {
    dlock_mysql::row::transaction(hold.shared_session().unwrap())
}
