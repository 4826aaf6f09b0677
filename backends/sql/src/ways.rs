//! The way in which each namespace is locked, and whose table or names it uses. Two programs with two ways do not
//! exclude each other, so the second one is refused.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use dlock_contract::{Error, ErrorKind, LockKey, Result};
use dlock_store::Address;
use sha2::{Digest, Sha256};

use crate::tables::row::namespace;

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
    /// A lease row whose holder is in ShedLock's table.
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

/// The longest word that the table takes.
const MAX_WORD_LENGTH: usize = 128;

/// How the locks of a store are taken. Remembers the namespaces whose way agrees with the table.
#[derive(Debug)]
pub struct Ways {
    word: Box<str>,
    right: RwLock<HashSet<Box<str>>>,
}

/// The name of the row of [`META`](crate::META) that holds the way of a key's namespace.
#[must_use]
pub fn way_name(key: &LockKey) -> String {
    format!("way:{}", namespace(key))
}

/// A namespace that tables of another schema or prefix have too.
#[derive(Debug)]
pub struct SplitNamespace {
    /// The namespace.
    pub namespace: String,
    /// The other settings table that has this namespace.
    pub other: String,
    /// Whether the locks are the same ones: named locks of the server, or rows of one table of the user.
    pub has_same_locks: bool,
}

impl SplitNamespace {
    /// The finding of a probe.
    #[must_use]
    pub fn finding(&self) -> String {
        let Self { namespace, other, has_same_locks } = self;
        let why = match has_same_locks {
            true => "Its locks exclude each other, but the tokens of the two tables are counted apart, and would fall",
            false => "The locks of that table and of this one do not exclude each other",
        };
        format!(
            "the namespace `{namespace}` is in the table {other} too. {why}: use one schema and one `table_prefix` in all programs, \
             or another namespace. If no program uses the other table any more, delete its row `way:{namespace}`"
        )
    }
}

/// The row of a namespace's way, which was just written, is not there.
pub(crate) fn way_is_gone() -> Error {
    Error::outage("somebody has deleted the row of the namespace's way in this moment")
}

/// The error of the first named lock in a namespace that other tables have too. Named locks exclude each other whatever tables their
/// programs use, but each table, or a sequence beside it, counts its own tokens.
pub(crate) fn split_tokens(key: &LockKey, other: &str) -> Error {
    let name = way_name(key);
    let text = format!(
        "named locks of this namespace are in the table {other} too. They exclude each other, but their fencing tokens are counted \
         apart, and would fall: use one schema and one `table_prefix` in all programs, or another namespace. If no program uses the \
         other table any more, delete its row `{name}`"
    );
    Error::new(ErrorKind::SchemaMismatch, text).never_sent()
}

impl Ways {
    /// Locks of this way. `place` is all else that decides which lock a key is: the full name of the user's table, or
    /// the names of foreign clients. Empty: dlock's own table and names.
    #[must_use]
    pub fn new(way: Way, place: &str) -> Self {
        let mut word = way.word().to_owned();
        if !place.is_empty() {
            word = format!("{word}:{place}");
        }
        if word.len() > MAX_WORD_LENGTH {
            let hash: String = Sha256::digest(word.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            word = format!("{}~{hash}", &word[..word.floor_char_boundary(MAX_WORD_LENGTH - 1 - hash.len())]);
        }
        Self { word: word.into(), right: RwLock::default() }
    }

    /// The word in the table.
    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// Whether the way of this namespace was compared with the table already.
    #[must_use]
    pub fn has(&self, key: &LockKey) -> bool {
        self.right.read().unwrap_or_else(PoisonError::into_inner).contains(namespace(key))
    }

    /// Compares the word in the table with the word of this store's locks.
    ///
    /// # Errors
    /// If they differ.
    pub fn compare(&self, key: &LockKey, found: &str) -> Result<()> {
        if found != &*self.word {
            return Err(self.other_way(key, found));
        }
        self.right.write().unwrap_or_else(PoisonError::into_inner).insert(namespace(key).into());
        Ok(())
    }

    fn other_way(&self, key: &LockKey, found: &str) -> Error {
        let text = format!(
            "in this database, the locks of this namespace are taken by way={found}, and this program takes them by way={}. \
             Locks of two ways do not exclude each other: use the same way and table in all programs. If these locks need \
             not exclude each other, use another namespace, or another `table_prefix`. To change the way, stop all programs \
             that use the namespace, and delete the row `{}` of dlock_meta (with a `table_prefix`: of the table \
             `<table_prefix>meta`)",
            self.word,
            way_name(key)
        );
        Error::new(ErrorKind::SchemaMismatch, text).never_sent()
    }
}
