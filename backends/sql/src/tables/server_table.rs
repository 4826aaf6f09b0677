//! A table of dlock's in a server: what it must look like, and what is said when it does not.

use dlock_contract::{Error, ErrorKind};

use crate::tables::table_names::TableNames;

/// A table of dlock's.
#[derive(Clone, Copy, Debug)]
pub struct ServerTable {
    /// Its name, as a word of [`TableNames`].
    pub name: &'static str,
    /// The shipped file that makes it.
    pub create: &'static str,
    /// Its columns in their order, with their indexes, as the server's own check writes them.
    pub columns: &'static [&'static str],
}

impl ServerTable {
    /// The statements that make it, and its indexes, unless they are there.
    #[must_use]
    pub fn create_if_missing(&self, names: &TableNames) -> String {
        let create = names.create(self.create);
        create.replace(" TABLE ", " TABLE IF NOT EXISTS ").replace(" INDEX ", " INDEX IF NOT EXISTS ")
    }

    /// Whether its rows are worth nothing after a crash of the server.
    #[must_use]
    pub fn may_be_unlogged(&self) -> bool {
        self.create.starts_with("CREATE UNLOGGED")
    }

    /// It is not there.
    #[must_use]
    pub fn missing(&self, names: &TableNames) -> Error {
        let text = format!("the table {} is missing: {}", names.full(self.name), names.create(self.create));
        Error::new(ErrorKind::SchemaMismatch, text)
    }

    /// It is not there, and the account may not make it.
    #[must_use]
    pub fn cannot_create(&self, names: &TableNames) -> Error {
        let text = format!(
            "the account sees no table {} and may not make it; grant it SELECT, INSERT and UPDATE on that table, \
             which another one can make: {}",
            names.full(self.name),
            names.create(self.create)
        );
        Error::new(ErrorKind::PermissionDenied, text)
    }

    /// It is there, and is not as it must be: what is said goes on behind its name.
    #[must_use]
    pub fn refused(&self, names: &TableNames, why: &str) -> Error {
        let text = format!("{} {why}; this creates it: {}", names.full(self.name), names.create(self.create));
        Error::new(ErrorKind::SchemaMismatch, text)
    }
}
