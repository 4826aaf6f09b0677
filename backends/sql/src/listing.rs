//! One page of the held locks, in a table whose key is the name of the lock.

use dlock_contract::{Cursor, Listing, LockKey, Page, Result};

use crate::dialect::Cell;
use crate::tables::row::{corrupt, end_of, head_of};

/// The prefix of the names that a listing asks for, and the range of rows in which they are.
pub(crate) fn range_of(listing: &Listing) -> Result<(String, String, String)> {
    let prefix = listing.name_prefix()?;
    // The name of a long key has only its beginning.
    let start = head_of(&prefix).to_owned();
    let end = end_of(&start);
    Ok((prefix, start, end))
}

/// The held locks among the rows of a range: name, whole key, whether it is held.
pub(crate) fn page_of(
    listing: &Listing,
    prefix: &str,
    rows: &[Vec<Cell>],
    read: fn(&str) -> Option<LockKey>,
) -> Result<Page> {
    let mut keys = Vec::new();
    for row in rows {
        let [name, long_key, is_held] = &row[..] else { return Err(corrupt("it has too few columns")) };
        let key = if long_key.text().is_empty() { name.text() } else { long_key.text() };
        if is_held.is_true() && key.starts_with(prefix) {
            keys.push(read(key).ok_or_else(|| corrupt("its name is no key"))?);
        }
    }
    let last = rows.last().filter(|_| rows.len() >= listing.limit()).and_then(|row| row.first());
    Ok(Page::new(keys, last.map(|name| Cursor::new(name.text()))))
}
