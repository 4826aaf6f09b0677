//! Holders, records of broken holds and pages of the held locks, as the rows of a table have them.

use dlock_contract::{BreakRecord, Cursor, Holder, Listing, LockKey, Note, Page, Result};

use crate::dialect::{Answer, Cell, OwnedValue};
use crate::tables::row::{corrupt, end_of, head_of};

/// The prefix of the names that a listing asks for, and the range of rows in which they are.
pub(crate) fn range_of(listing: &Listing) -> Result<(String, String, String)> {
    let prefix = listing.name_prefix()?;
    // The name of a long key has only its beginning.
    let start = head_of(&prefix).to_owned();
    let end = end_of(&start);
    Ok((prefix, start, end))
}

/// The values of a listing: after, start, end, limit.
pub(crate) fn values_of(listing: &Listing, start: String, end: String) -> Vec<OwnedValue> {
    let after = listing.after.as_ref().map_or("", Cursor::as_str).to_owned();
    let limit = i64::try_from(listing.limit()).unwrap_or(i64::MAX);
    vec![OwnedValue::Text(after), OwnedValue::Text(start), OwnedValue::Text(end), OwnedValue::Int(limit)]
}

/// The holder whose row has this note, hold id and token.
pub(crate) fn holder_of([note, hold, token]: [&Cell; 3]) -> Holder {
    Holder::new(Note::from_stored(note.text())).with(|holder| {
        holder.id = hold.text().parse().ok();
        holder.token = token.int().and_then(|token| u64::try_from(token).ok());
    })
}

/// The record of a broken hold, if there is one.
pub(crate) fn record_in(answer: &Answer) -> Option<BreakRecord> {
    let record = answer.rows.first().and_then(|row| row.first());
    record.map(|record| BreakRecord::from_stored(record.text()))
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
