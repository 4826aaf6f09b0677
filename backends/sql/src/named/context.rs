//! The parts that all sessions of a store share.

use dlock_contract::{LockKey, Result};
use dlock_store::Clock;

use super::dialect::NamedDialect;
use super::left_sessions::LeftSessions;
use super::name::LockName;
use super::statements::NamedStatements;
use crate::connection::closed::Closed;
use crate::connection::collisions::Collisions;
use crate::dialect::Value;
use crate::settings::Settings;
use crate::tables::row::{RowName, row_name};

/// The parts that all sessions of a store share.
#[derive(Debug)]
pub(super) struct NamedContext<D> {
    pub(super) dialect: D,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) statements: NamedStatements,
    /// Statements about a whole namespace.
    pub(super) common: crate::tables::statements::LeaseStatements,
    pub(super) collisions: Collisions,
    pub(super) left_sessions: LeftSessions,
    pub(super) closed: Closed,
}

/// A lock, as the server and the table know it.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) name: LockName,
    pub(super) row: RowName,
}

impl<D: NamedDialect> NamedContext<D> {
    /// The lock of a key.
    ///
    /// # Errors
    /// For a key that has no literal name, if names are literal.
    pub(super) fn lock_of(&self, key: &LockKey) -> Result<Lock> {
        let key = if self.settings.is_literal { &key.literal()? } else { key };
        Ok(Lock { name: self.dialect.lock_name(key)?, row: row_name(key) })
    }

    /// Raises the sequence that tokens are drawn from above all earlier ones, if the server has forgotten some. If it
    /// `is_behind` the clock, it is raised in any case.
    pub(super) async fn raise_tokens(&self, conn: &mut D::Conn, is_behind: bool) -> sqlx::Result<()> {
        let Some(sequence) = &self.statements.sequence else { return Ok(()) };
        self.dialect.run(conn, &sequence.raise, &[Value::Int(is_behind.into())]).await.map(drop)
    }
}
