//! A lock inside the caller's own transaction. The server frees it when the transaction ends.
//!
//! Such a lock lasts exactly as long as the transaction, so it is not renewed and cannot be lost before it. If the connection
//! ends, the server rolls the transaction back, with all its writes. This works behind every pooler.

use dlock_contract::{Error, ErrorKind, LockKey, Result};
use dlock_sql::LockName;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::{fault, state};

/// A transaction of sqlx.
pub type Transaction<'c> = sqlx::Transaction<'c, sqlx::Postgres>;

/// Takes the lock of a key, and holds it until the transaction commits or is rolled back. It waits until the transaction's
/// `lock_timeout` or `statement_timeout`; without these, for ever.
///
/// It excludes all callers of `lock_in` with this key in the same database, and all holders of the key by `way=named`. It does not
/// exclude lease rows. A transaction may take a lock more than once.
///
/// In `REPEATABLE READ` and `SERIALIZABLE` the transaction sees the data as it was before the wait for the lock.
///
/// # Errors
/// [`WaitTimeout`](ErrorKind::WaitTimeout) at one of these limits; [`Outage`](ErrorKind::Outage), for which a retry may help, at
/// a deadlock with another transaction. The server has aborted the transaction then: roll it back.
pub async fn lock_in(transaction: &mut Transaction<'_>, key: &LockKey) -> Result<()> {
    let lock = format!("SELECT pg_advisory_xact_lock({})", LockName::number_of(key).number);
    // As one message: a pooler could give the parts of a prepared statement to different sessions.
    let taken = sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut **transaction).await;
    taken.map(drop).map_err(|error| match state(&error).as_deref() {
        Some("55P03" | "57014") => {
            let text = "the lock was not free within the transaction's lock_timeout or statement_timeout";
            Error::new(ErrorKind::WaitTimeout, text).because(fault(error)).with_key(key.as_str())
        }
        Some("40P01") => {
            let text = "a deadlock: another transaction and this one wait for each other's locks; roll back, and \
                take the locks in one order everywhere";
            Error::outage(text).because(fault(error)).with_key(key.as_str())
        }
        _ => fault(error).with_key(key.as_str()),
    })
}

/// Like [`lock_in`], without a wait. False: another owner holds the lock. The transaction goes on in both cases.
///
/// # Errors
/// If the server fails.
pub async fn try_lock_in(transaction: &mut Transaction<'_>, key: &LockKey) -> Result<bool> {
    let lock = format!("SELECT pg_try_advisory_xact_lock({})", LockName::number_of(key).number);
    let row = sqlx::raw_sql(AssertSqlSafe(lock)).fetch_one(&mut **transaction).await;
    row.and_then(|row| row.try_get(0)).map_err(|error| fault(error).with_key(key.as_str()))
}
