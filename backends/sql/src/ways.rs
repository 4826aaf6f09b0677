//! The way in which each namespace is locked. Two programs with two ways do not exclude each other, so the second one
//! is refused.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use dlock_contract::{Address, Error, ErrorKind, LockKey, Result};

use crate::dialect::{Dialect, Value};
use crate::row::namespace;
use crate::session::StatementSession;

/// A way of locking, as the option `way` of a URL names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// A row with the end of a lease.
    Lease,
    /// A lock that the server knows by a name, and that belongs to a session.
    Named,
    /// A row that a transaction keeps locked.
    Row,
    /// A lease row whose holder stands in ShedLock's table.
    Shedlock,
}

impl Way {
    /// The way that a URL names.
    #[must_use]
    pub fn of(address: &Address) -> Self {
        match address.option("way") {
            Some("named") => Self::Named,
            Some("row") => Self::Row,
            _ => Self::Lease,
        }
    }

    /// The word in the URL, and in the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Named => "named",
            Self::Row => "row",
            Self::Shedlock => "shedlock",
        }
    }
}

/// The namespaces whose way was looked up, and found right.
#[derive(Debug, Default)]
pub struct Ways(RwLock<HashSet<Box<str>>>);

/// The name of the row of [`META`](crate::META) that has the way of a key's namespace as its word.
#[must_use]
pub fn way_name(key: &LockKey) -> String {
    format!("way:{}", namespace(key))
}

impl Ways {
    /// Whether this namespace needs no look any more.
    #[must_use]
    pub fn has(&self, key: &LockKey) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(namespace(key))
    }

    /// Compares the word that stands in the table with the way that locks are taken here.
    ///
    /// # Errors
    /// If they differ.
    pub fn compare(&self, key: &LockKey, found: &str, way: Way) -> Result<()> {
        if found != way.word() {
            return Err(other_way(key, found, way));
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(namespace(key).into());
        Ok(())
    }

    /// Notes the way of the key's namespace in the table, or fails if another one stands there.
    pub(crate) async fn agree<D: Dialect>(
        &self,
        session: &mut StatementSession<D>,
        key: &LockKey,
        way: Way,
    ) -> Result<()> {
        let (name, context) = (way_name(key), session.context.clone());
        let values = [Value::Text(&name), Value::Text(way.word())];
        let mut rows = session.ask(&context.statements.read_meta, &values[..1]).await?.rows;
        if rows.is_empty() {
            session.insert(&context.statements.write_meta, &values).await?;
            rows = session.ask(&context.statements.read_meta, &values[..1]).await?.rows;
        }
        let found = rows.first().and_then(|row| row.first()).map_or("", |word| word.text());
        self.compare(key, found, way)
    }
}

fn other_way(key: &LockKey, found: &str, way: Way) -> Error {
    let text = format!(
        "the locks of this namespace are taken by way={found} in this database, and here by way={}. Locks of the two ways do not \
         exclude each other: use one way everywhere, or another namespace. To change it, stop all programs that use the \
         namespace, and delete the row `{}` of dlock_meta, whose name begins with the URL's `table_prefix` if it has one",
        way.word(),
        way_name(key)
    );
    Error::new(ErrorKind::SchemaMismatch, text).never_sent()
}
