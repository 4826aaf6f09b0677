//! Fenced writes in an SQLite database: the application's own, not the file of the locks.
//!
//! ```no_run
//! # async fn write(fence: &dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_sqlite::fenced as fenced;
//! use sqlx::Connection;
//!
//! let mut conn = sqlx::SqliteConnection::connect("sqlite://shop.db").await?;
//! fenced::prepare(&mut conn).await?; // once
//!
//! let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await?;
//! fenced::admit(&mut transaction, fence, "stock:42").await?; // refuses a token that is too old
//! sqlx::query("UPDATE stock SET count = count - 1 WHERE id = 42").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use dlock_contract::{Error, ErrorKind, Fence, Result};
use sqlx::sqlite::SqliteConnection;

use crate::fault;

/// One row for each resource, for as long as the resource exists: a deleted row forgets the tokens that were seen.
const CREATE: &str = "\
    CREATE TABLE IF NOT EXISTS dlock_fenced (\
        resource TEXT PRIMARY KEY, lock_key TEXT NOT NULL, token INTEGER NOT NULL\
    ) STRICT, WITHOUT ROWID";

/// Only raises the token. Changes a row only if the write may go ahead.
const RAISE: &str = "\
    INSERT INTO dlock_fenced (resource, lock_key, token) VALUES (?1, ?2, ?3) \
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token \
    WHERE lock_key = excluded.lock_key AND token <= excluded.token";

const SEEN: &str = "SELECT lock_key, token FROM dlock_fenced WHERE resource = ?1";

/// Creates the table `dlock_fenced` in the database of `conn` if it does not exist.
///
/// # Errors
/// If the database cannot be written.
pub async fn prepare(conn: &mut SqliteConnection) -> Result<()> {
    sqlx::raw_sql(CREATE).execute(conn).await.map(drop).map_err(fault)
}

/// Lets the transaction's writes to `resource` go ahead, unless a higher token was seen there. Call it first, and
/// inside the transaction that writes. Outside of that transaction it proves nothing about the write after it.
///
/// A resource belongs to one lock, and its name has at most 512 bytes. Equal tokens pass, so a hold may write often.
///
/// # Errors
/// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if a higher token was seen,
/// [`FenceInvalid`](dlock_contract::ErrorKind::FenceInvalid) if the resource belongs to another lock. Roll back then.
/// [`Outage`](dlock_contract::ErrorKind::Outage) if another transaction was faster; `BEGIN IMMEDIATE` spares you that.
pub async fn admit(conn: &mut SqliteConnection, fence: &Fence, resource: &str) -> Result<()> {
    Fence::check_resource(resource)?;
    let token = i64::try_from(fence.get()).map_err(|_| {
        fence.named(Error::new(ErrorKind::FenceInvalid, "the token is larger than any token that was granted"))
    })?;
    let raised = sqlx::query(RAISE)
        .bind(resource)
        .bind(fence.key().as_str())
        .bind(token)
        .execute(&mut *conn)
        .await
        .map_err(unprepared)?;
    if raised.rows_affected() > 0 {
        return Ok(());
    }
    let seen: Vec<(String, i64)> = sqlx::query_as(SEEN).bind(resource).fetch_all(conn).await.map_err(fault)?;
    let Some((key, seen)) = seen.first() else {
        return Err(Error::new(ErrorKind::CorruptState, "a fenced resource vanished in the middle of a transaction"));
    };
    fence.check(key.as_bytes(), u64::try_from(*seen).unwrap_or(u64::MAX))
}

fn unprepared(error: sqlx::Error) -> Error {
    let is_missing =
        error.as_database_error().is_some_and(|error| error.message().contains("no such table: dlock_fenced"));
    if is_missing {
        let text =
            "the table `dlock_fenced` is missing: call `dlock::fenced::sqlite::prepare` once, before the first `admit`";
        return Error::new(ErrorKind::SchemaMismatch, text).because(error);
    }
    fault(error)
}
