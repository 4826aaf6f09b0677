//! Fenced writes in a MySQL or MariaDB database.
//!
//! ```no_run
//! # async fn write(fence: &dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_mysql::fenced;
//! use sqlx::Connection;
//!
//! let mut conn = sqlx::MySqlConnection::connect("mysql://shop@db/shop").await?;
//! fenced::prepare(&mut conn).await?; // once
//!
//! let mut transaction = conn.begin().await?;
//! fenced::admit(&mut transaction, fence, "stock:42").await?; // refuses a token that is too old
//! sqlx::query("UPDATE stock SET count = count - 1 WHERE id = 42").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use dlock_contract::{Error, ErrorKind, Fence, Result};
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use crate::server::fault::{fault, number};

/// One row for each resource. It must stay as long as the resource exists, because it has the highest token seen.
const CREATE: &str = "\
    CREATE TABLE IF NOT EXISTS dlock_fenced (\
        resource VARBINARY(512) NOT NULL PRIMARY KEY, \
        lock_key VARBINARY(4096) NOT NULL, \
        token BIGINT UNSIGNED NOT NULL\
    ) ENGINE=InnoDB";

/// Raises the token and never lowers it. Locks the row until the transaction ends, even if the token does not change.
const RAISE: &str = "\
    INSERT INTO dlock_fenced (resource, lock_key, token) VALUES (?, ?, ?) \
    ON DUPLICATE KEY UPDATE token = IF(lock_key = VALUES(lock_key), GREATEST(token, VALUES(token)), token)";

/// A locking read: it sees the row as it is now, and not as it was when the transaction began.
const SEEN: &str = "SELECT lock_key, token FROM dlock_fenced WHERE resource = ? FOR UPDATE";

/// Creates the table `dlock_fenced` in the database of `conn` if it does not exist. Like every definition in MySQL,
/// this commits an open transaction, so call it once, at the start.
///
/// # Errors
/// If the account may not create tables, or the server fails.
pub async fn prepare(conn: &mut MySqlConnection) -> Result<()> {
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
pub async fn admit(conn: &mut MySqlConnection, fence: &Fence, resource: &str) -> Result<()> {
    Fence::check_resource(resource)?;
    sqlx::query(RAISE)
        .bind(resource.as_bytes())
        .bind(fence.key().as_str().as_bytes())
        .bind(fence.get())
        .execute(&mut *conn)
        .await
        .map_err(unprepared)?;
    // Always read: the count of changed rows depends on the flags of the caller's connection, so it proves nothing.
    let row = sqlx::query(SEEN).bind(resource.as_bytes()).fetch_one(conn).await.map_err(fault)?;
    let key: Vec<u8> = row.try_get(0).map_err(fault)?;
    fence.check(&key, row.try_get(1).map_err(fault)?)
}

fn unprepared(error: sqlx::Error) -> Error {
    if number(&error) == Some(1146) {
        let text =
            "the table `dlock_fenced` is missing: call `dlock::fenced::mysql::prepare` once, before the first `admit`";
        return Error::new(ErrorKind::SchemaMismatch, text).because(error);
    }
    fault(error)
}
