//! Functions for PostgreSQL only.

use dlock_contract::{Key, LockKey, Result};
pub use dlock_postgres::Transaction;
pub use dlock_postgres::row::{RowConnection, RowTransaction};

use crate::{Held, Registry};

/// Takes a lock in a transaction of your own, and keeps it until the transaction commits or is rolled back.
///
/// There is nothing to renew and nothing to lose, because the lock lives exactly as long as the transaction. It needs no
/// [`connect`](crate::connect), no table, and works behind every pooler. It waits for as long as the transaction's `lock_timeout`
/// and `statement_timeout` allow; without these, for ever.
///
/// The key is in the default namespace of the [global registry](Registry::global). The lock excludes all callers of `lock_in` with
/// this key in the same database, and all holders of the key by `?way=named`. It does not exclude lease rows.
///
/// Leave the isolation level at PostgreSQL's default, `READ COMMITTED`. In `REPEATABLE READ` and `SERIALIZABLE` the transaction sees
/// the data as it was before the wait for the lock, and not what the holder before it has committed.
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

/// Like `lock_in`, without a wait: false if another owner has the lock. The transaction goes on in any case.
///
/// # Errors
/// If the server fails.
pub async fn try_lock_in(transaction: &mut Transaction<'_>, key: impl Into<Key>) -> Result<bool> {
    dlock_postgres::try_lock_in(transaction, &name_of(key)?).await
}

/// The transaction that a lock of `?way=row` is, for the body's own statements: the lock and the data end together.
///
/// The transaction is committed when the body has succeeded. An error, a panic, a cancelled call or a loss of the lock
/// rolls it back. If the server refuses the commit, the call fails with
/// [`CommitRefused`](crate::ErrorKind::CommitRefused), and if nobody knows, with
/// [`CommitUnknown`](crate::ErrorKind::CommitUnknown).
///
/// If the server has undone the transaction because of another one beside it (a deadlock), the call may be run again:
/// [`statement_error`](RowConnection::statement_error) shows it.
///
/// `held` is what the body has of its lock: its `guard` parameter, [`current`](crate::current), or a [`Guard`](crate::Guard). A
/// guard commits by [`release`](crate::Guard::release), and rolls back when it is dropped.
///
/// # Errors
/// [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) if there is a handle of the transaction already;
/// [`Lost`](crate::ErrorKind::Lost) if the lock was lost; [`Unsupported`](crate::ErrorKind::Unsupported) if the lock is no row lock
/// of PostgreSQL.
///
/// ```no_run
/// # #[cfg(feature = "macros")] mod example {
/// use dlock::{distributed_lock, postgres};
///
/// #[distributed_lock(key = "<id>", backend = "orders", guard = held)]
/// async fn pay(id: i64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     let mut tx = postgres::transaction(&held)?;
///     let paid = sqlx::query("UPDATE orders SET paid = true WHERE id = $1 AND NOT paid").bind(id);
///     paid.execute(&mut *tx.conn().await?).await?;
///     Ok(())
/// }
/// # }
/// ```
pub fn transaction(held: &Held) -> Result<RowTransaction> {
    let row = held.session("a lock of PostgreSQL by `way=row`")?;
    dlock_postgres::row::transaction(row)
        .map_err(|error| error.with_key(held.key().as_str()).with_backend(held.backend()))
}

fn name_of(key: impl Into<Key>) -> Result<LockKey> {
    LockKey::new(&Registry::global().defaults().namespace, key.into())
}
