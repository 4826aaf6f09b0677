//! Functions for MySQL and MariaDB only.

pub use dlock_mysql::row::{RowConnection, RowTransaction};

use crate::{Held, Result};

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
/// of MySQL or MariaDB.
///
/// ```no_run
/// # #[cfg(feature = "macros")] mod example {
/// use dlock::{distributed_lock, mysql};
///
/// #[distributed_lock(key = "<id>", backend = "orders", guard = held)]
/// async fn pay(id: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     let mut tx = mysql::transaction(&held)?;
///     let paid = sqlx::query("UPDATE orders SET paid = 1 WHERE id = ? AND paid = 0").bind(id);
///     paid.execute(&mut *tx.conn().await?).await?;
///     Ok(())
/// }
/// # }
/// ```
pub fn transaction(held: &Held) -> Result<RowTransaction> {
    let row = held.session("a lock of MySQL or MariaDB by `way=row`")?;
    dlock_mysql::row::transaction(row).map_err(|error| error.with_key(held.key().as_str()).with_backend(held.backend()))
}
