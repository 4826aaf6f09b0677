//! The transaction of a hold, for the body's own statements.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use dlock_contract::{Error, ErrorKind, LossCause, Result};
use tokio::sync::OwnedMutexGuard;

use super::dialect::RowDialect;
use super::held::HeldRow;
use super::life::{Life, Work};
use super::sessions::RowSession;
use super::settle::{ENDED, unknown};
use crate::dialect::Refusal;

/// The transaction of a hold. The body's statements run inside of it by [`conn`](Self::conn).
///
/// Their writes are committed when the body has succeeded, and rolled back in every other case: at an error, a panic, a
/// cancelled call, a loss of the lock. There is one handle of a transaction at a time.
///
/// Do not end the transaction by a statement (`COMMIT`, `ROLLBACK`, in MySQL and MariaDB also every change of a table's
/// definition): that ends the lock too, and the call fails.
pub struct RowTransaction<D: RowDialect> {
    held: Arc<HeldRow<D>>,
    _handle: OwnedMutexGuard<()>,
}

/// The connection of a transaction, for as long as statements run. It is the client library's own type behind `*`.
///
/// Drop it before the body does something else for as long as the ttl: while it is there, dlock sends nothing over the
/// connection, and the server ends a session that is silent for the ttl.
pub struct RowConnection<'a, D: RowDialect> {
    slot: OwnedMutexGuard<Option<RowSession<D>>>,
    held: &'a HeldRow<D>,
}

impl<D: RowDialect> RowTransaction<D> {
    /// The transaction of a hold.
    ///
    /// # Errors
    /// [`ErrorKind::WouldDeadlock`] if there is a handle of it already; [`ErrorKind::Lost`] if the lock was lost.
    pub fn of(held: Arc<HeldRow<D>>) -> Result<Self> {
        if held.has_ended() {
            return Err(lost(&held));
        }
        let Ok(handle) = held.handle.clone().try_lock_owned() else {
            let text =
                "the transaction of this lock is in use: it has one handle at a time; drop that one, or hand it on";
            return Err(Error::new(ErrorKind::WouldDeadlock, text));
        };
        Ok(Self { held, _handle: handle })
    }

    /// The connection, for statements: `sqlx::query(…).execute(&mut *transaction.conn().await?)`. It waits for a request of
    /// dlock's that is under way. From the second time on it asks the server whether the transaction is still the one with the
    /// lock: after a deadlock, which undoes the transaction, there is no connection.
    ///
    /// A savepoint of yours lives as long as the connection is lent.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock was lost, or has ended; that of the server if it does not say.
    pub async fn conn(&mut self) -> Result<RowConnection<'_, D>> {
        let mut slot = self.held.slot.clone().lock_owned().await;
        let (Some(open), false) = (slot.as_mut(), self.held.has_ended()) else { return Err(lost(&self.held)) };
        if self.held.work().has_begun() && !self.held.confirm_in_transaction(&mut open.conn).await? {
            self.held.end();
            return Err(lost(&self.held));
        }
        self.held.note_work(Work::lent);
        Ok(RowConnection { slot, held: &self.held })
    }
}

impl<D: RowDialect> RowConnection<'_, D> {
    /// The meaning of a failed statement for the call: [`Conflict`](ErrorKind::Conflict) if the server has undone the transaction
    /// because of another one beside it (a deadlock, a serialization failure). Nothing of its work stays then, and the whole call
    /// may be run again, as `#[dlock::optimistic]` does. [`CommitUnknown`](ErrorKind::CommitUnknown) if a statement of the body
    /// has ended the transaction before, such as a change of a table's definition in MySQL and MariaDB, and may have committed it.
    /// Every other error stays what it is.
    ///
    /// `ready()` counts what was asked here. See `backends/sql/row-locks.md` for an example.
    pub fn statement_error<E: From<Error> + From<sqlx::Error>>(&self, error: sqlx::Error) -> E {
        let context = &self.held.sessions.context;
        if context.dialect.is_elsewhere(&error) {
            return unknown(ENDED).because(error).into();
        }
        let refusal = context.dialect.refusal(&error);
        context.collisions.note(refusal);
        if refusal != Refusal::Undone {
            return error.into();
        }
        let text = "the server has undone the transaction of the lock because of another one beside it, such as at a deadlock: \
                    nothing of its work stays, so begin the whole call anew";
        Error::new(ErrorKind::Conflict, text).because(context.dialect.fault(error)).into()
    }
}

fn lost<D: RowDialect>(held: &HeldRow<D>) -> Error {
    let text = "the transaction has ended with its lock, and nothing of its work stays";
    let cause = if held.life() == Life::Committed { LossCause::Released } else { LossCause::Store };
    Error::new(ErrorKind::Lost(cause), text)
}

impl<D: RowDialect> Deref for RowConnection<'_, D> {
    type Target = D::Conn;

    fn deref(&self) -> &D::Conn {
        match &*self.slot {
            Some(open) => &open.conn,
            // It was there when this was made, and nobody can take it meanwhile.
            None => unreachable!("a connection that was lent is gone"),
        }
    }
}

impl<D: RowDialect> DerefMut for RowConnection<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Conn {
        match &mut *self.slot {
            Some(open) => &mut open.conn,
            None => unreachable!("a connection that was lent is gone"),
        }
    }
}

impl<D: RowDialect> fmt::Debug for RowTransaction<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowTransaction").field("held", &self.held).finish()
    }
}

impl<D: RowDialect> fmt::Debug for RowConnection<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowConnection").finish_non_exhaustive()
    }
}
