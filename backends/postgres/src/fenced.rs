//! Fenced writes in a PostgreSQL database.
//!
//! ```no_run
//! # async fn write(fence: &dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_postgres::fenced;
//! use sqlx::Connection;
//!
//! let mut conn = sqlx::PgConnection::connect("postgres://shop@db/shop").await?;
//! fenced::prepare(&mut conn).await?; // once
//!
//! let mut transaction = conn.begin().await?;
//! fenced::admit(&mut transaction, fence, "stock:42").await?; // refuses a token that is too old
//! sqlx::query("UPDATE stock SET count = count - 1 WHERE id = 42").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use dlock_contract::{Error, ErrorKind, Fence, Result};
use sqlx::postgres::PgConnection;

use crate::server::fault::{fault, state};

/// One row for each resource. It must stay as long as the resource exists, because it has the highest token seen.
const CREATE: &str = "\
    CREATE TABLE IF NOT EXISTS dlock_fenced (\
        resource TEXT COLLATE \"C\" NOT NULL PRIMARY KEY, \
        lock_key TEXT COLLATE \"C\" NOT NULL, \
        token BIGINT NOT NULL\
    )";

/// Raises the token and never lowers it. Locks the row until the transaction ends and returns the highest token seen, even
/// if the token does not change.
const RAISE: &str = "\
    INSERT INTO dlock_fenced AS seen (resource, lock_key, token) VALUES ($1, $2, $3) \
    ON CONFLICT (resource) DO UPDATE SET \
        token = CASE WHEN seen.lock_key = excluded.lock_key THEN GREATEST(seen.token, excluded.token) ELSE seen.token END \
    RETURNING lock_key, token";

/// Creates the table `dlock_fenced` in the first schema of the path of `conn` if it does not exist.
///
/// # Errors
/// If the account may not create tables, or the server fails.
pub async fn prepare(conn: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(CREATE).execute(conn).await.map(drop).map_err(fault)
}

/// Allows the transaction's writes to `resource`, unless a higher token was seen there. Call it inside the transaction that
/// writes, before the first write. Outside of that transaction it proves nothing about later writes.
///
/// A resource belongs to one lock. Its name has at most 512 bytes. Equal tokens are allowed, so a hold may write often.
///
/// # Errors
/// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if a higher token was seen,
/// [`FenceInvalid`](dlock_contract::ErrorKind::FenceInvalid) if the resource belongs to another lock. Roll back then.
pub async fn admit(conn: &mut PgConnection, fence: &Fence, resource: &str) -> Result<()> {
    Fence::check_resource(resource)?;
    // A token is below 2^53.
    let token = i64::try_from(fence.get()).unwrap_or(i64::MAX);
    let raise = sqlx::query_as(RAISE).bind(resource).bind(fence.key().as_str()).bind(token);
    let (key, seen): (String, i64) = raise.fetch_one(conn).await.map_err(unprepared)?;
    fence.check(key.as_bytes(), u64::try_from(seen).unwrap_or_default())
}

fn unprepared(error: sqlx::Error) -> Error {
    if state(&error).as_deref() == Some("42P01") {
        let text = "the table `dlock_fenced` is missing: call `dlock::fenced::postgres::prepare` once, before the first `admit`";
        return Error::new(ErrorKind::SchemaMismatch, text).because(error);
    }
    fault(error)
}
