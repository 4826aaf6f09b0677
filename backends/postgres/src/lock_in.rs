//! A lock in a transaction of the caller's own: taken in it, and freed when it ends.
//!
//! The server keeps such a lock for exactly as long as the transaction, so there is nothing to renew and nothing to lose: if the
//! connection ends, the transaction is rolled back, and its writes are gone with the lock. It works behind every pooler.

use dlock_contract::{Error, ErrorKind, LockKey, Result};
use dlock_sql::LockName;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::{fault, state};

/// A transaction of sqlx.
pub type Transaction<'c> = sqlx::Transaction<'c, sqlx::Postgres>;

/// Takes the lock of a key, and keeps it until the transaction commits or is rolled back. It waits for as long as the
/// transaction's `lock_timeout` and `statement_timeout` allow; without these, for ever.
///
/// It excludes all callers of `lock_in` with this key in the same database, and all holders of the key by `way=named`. It does not
/// exclude lease rows. A transaction may take a lock more than once.
///
/// # Errors
/// [`WaitTimeout`](ErrorKind::WaitTimeout) at the end of one of these limits, and [`Outage`](ErrorKind::Outage), which a retry
/// may help, at a deadlock with another transaction. The server has then ended the transaction: roll it back.
pub async fn lock_in(transaction: &mut Transaction<'_>, key: &LockKey) -> Result<()> {
    let lock = format!("SELECT pg_advisory_xact_lock({})", LockName::number_of(key).number);
    // In one message: a pooler could give the parts of a prepared statement to different sessions.
    let taken = sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut **transaction).await;
    taken.map(drop).map_err(|error| match state(&error).as_deref() {
        Some("55P03" | "57014") => {
            let text = "the lock was not free within the transaction's lock_timeout or statement_timeout";
            Error::new(ErrorKind::WaitTimeout, text).because(fault(error)).with_key(key.as_str())
        }
        Some("40P01") => {
            let text = "another transaction waits for a lock of this one, while this one waits for one of its: roll back, and \
                take the locks in one order everywhere";
            Error::outage(text).because(fault(error)).with_key(key.as_str())
        }
        _ => fault(error).with_key(key.as_str()),
    })
}

/// The same without a wait: false if somebody else has the lock. The transaction goes on in any case.
///
/// # Errors
/// If the server fails.
pub async fn try_lock_in(transaction: &mut Transaction<'_>, key: &LockKey) -> Result<bool> {
    let lock = format!("SELECT pg_try_advisory_xact_lock({})", LockName::number_of(key).number);
    let row = sqlx::raw_sql(AssertSqlSafe(lock)).fetch_one(&mut **transaction).await;
    row.and_then(|row| row.try_get(0)).map_err(|error| fault(error).with_key(key.as_str()))
}
