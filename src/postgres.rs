//! What PostgreSQL alone can do.

use dlock_contract::{Key, LockKey, Result};
pub use dlock_postgres::Transaction;

use crate::Registry;

/// Takes a lock in a transaction of your own, and keeps it until the transaction commits or is rolled back.
///
/// There is nothing to renew and nothing to lose, because the lock lives exactly as long as the transaction. It needs no
/// [`connect`](crate::connect), no table, and works behind every pooler. It waits for as long as the transaction's `lock_timeout`
/// and `statement_timeout` allow; without these, for ever.
///
/// The key is in the default namespace of the [global registry](Registry::global). The lock excludes all callers of `lock_in` with
/// this key in the same database, and all holders of the key by `?way=named`. It does not exclude lease rows.
///
/// # Errors
/// [`WaitTimeout`](crate::ErrorKind::WaitTimeout) at the end of one of these limits, and
/// [`Outage`](crate::ErrorKind::Outage), which a retry may help, at a deadlock with another transaction. The server has then
/// ended the transaction: roll it back.
///
/// ```no_run
/// use sqlx::{Connection, PgConnection};
///
/// # async fn deduct(conn: &mut PgConnection, id: i64) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = conn.begin().await?;
/// dlock::postgres::lock_in(&mut tx, dlock::Key::text("stock:").value(&id)).await?;
/// sqlx::query("UPDATE stock SET n = n - 1 WHERE id = $1").bind(id).execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn lock_in(transaction: &mut Transaction<'_>, key: impl Into<Key>) -> Result<()> {
    dlock_postgres::lock_in(transaction, &name_of(key)?).await
}

/// The same without a wait: false if somebody else has the lock. The transaction goes on in any case.
///
/// # Errors
/// If the server fails.
pub async fn try_lock_in(transaction: &mut Transaction<'_>, key: impl Into<Key>) -> Result<bool> {
    dlock_postgres::try_lock_in(transaction, &name_of(key)?).await
}

fn name_of(key: impl Into<Key>) -> Result<LockKey> {
    LockKey::new(&Registry::global().defaults().namespace, key.into())
}
