//! The version of dlock's tables: one row of the settings has it.
//!
//! The columns are checked too. They do not show that the meaning of a value has changed, such as the name of a long
//! key's row. Two versions of dlock that write it in two ways would not exclude each other.

use dlock_contract::{Error, ErrorKind, Result};

use crate::tables::statements::META;
use crate::tables::table_names::TableNames;

/// Raised with each change of a table, or of what its values mean.
const SCHEMA_VERSION: i64 = 1;

/// Reads the version: one number, or no row in new tables.
pub(crate) fn read_version(names: &TableNames) -> String {
    format!("SELECT number FROM {} WHERE name = 'schema'", names.full(META))
}

/// Notes the version of new tables. `unless_there` ends an insert that changes nothing if the row is there.
pub(crate) fn note_version(names: &TableNames, unless_there: &str) -> String {
    format!(
        "INSERT INTO {} (name, word, number) VALUES ('schema', '', {SCHEMA_VERSION}){unless_there}",
        names.full(META)
    )
}

/// Compares the version in the table with this program's.
pub(crate) fn compare_version(names: &TableNames, found: i64) -> Result<()> {
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    let (meta, newer) = (names.full(META), if found > SCHEMA_VERSION { "this program" } else { "the tables" });
    let text = format!(
        "{meta} says that dlock's tables have the schema {found}, and this program knows the schema {SCHEMA_VERSION}: update {newer}"
    );
    Err(Error::new(ErrorKind::SchemaMismatch, text).never_sent())
}
