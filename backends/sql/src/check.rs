//! Finds the mistakes of an address by its own text, for a store that is opened later.

use dlock_contract::Result;
use dlock_store::Address;

use crate::settings::Settings;
use crate::tables::row_table::RowTable;
use crate::tables::shedlock::ShedlockTable;
use crate::tables::table_names::TableNames;
use crate::ways::Way;

/// Reads all that the way of this address reads of it when it is opened.
///
/// # Errors
/// The errors of an opening that need no server.
pub fn check(address: &Address, tables: &TableNames) -> Result<()> {
    match Way::of(address) {
        Way::Named => Settings::of_named(address).map(drop),
        Way::Row => RowTable::of(address, tables).and(Settings::of_row(address)).map(drop),
        // MySQL's form has no schema.
        _ => ShedlockTable::of(address, address.option("schema")).and(Settings::of(address)).map(drop),
    }
}
