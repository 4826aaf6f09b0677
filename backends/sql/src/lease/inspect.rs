//! Inspection: the holder of a lock, listings of held locks, and breaking a hold.

use std::time::Duration;

use dlock_contract::{BreakRecord, Cursor, HoldId, Holder, Listing, LockKey, LockState, Note, Page, Result};

use crate::connection::session::StatementSession;
use crate::dialect::{Dialect, Value};
use crate::listing::{page_of, range_of};
use crate::tables::numbers::micros;
use crate::tables::row::corrupt;
use crate::tables::shedlock;

/// The shortest time for which the record of a broken hold is kept.
const SHORTEST_KEEP: Duration = Duration::from_secs(60);

pub(crate) async fn look<D: Dialect>(session: &mut StatementSession<D>, key: &LockKey) -> Result<LockState> {
    let context = session.context.clone();
    let row = context.row_name(key)?;
    let answer = session.ask(&context.statements.look, &[Value::Text(&row.name)]).await?;
    let holders = answer.rows.iter().map(|row| {
        let [left, token, note, hold] = &row[..] else { return Err(corrupt("it has too few columns")) };
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(Holder::new(Note::from_stored(note.text())).with(|holder| {
            holder.id = hold.text().parse().ok();
            holder.token = number(token.int());
            holder.lease_left = number(left.int()).map(Duration::from_micros);
        }))
    });
    // Waiters poll; nobody counts them.
    Ok(LockState::new(holders.collect::<Result<_>>()?, None))
}

pub(crate) async fn list<D: Dialect>(session: &mut StatementSession<D>, listing: &Listing) -> Result<Page> {
    let context = session.context.clone();
    let is_literal = context.dialect.shedlock().is_some();
    let (prefix, start, end) = if is_literal { shedlock::range_of(listing) } else { range_of(listing)? };
    let after = listing.after.as_ref().map_or("", Cursor::as_str);
    let limit = Value::Int(i64::try_from(listing.limit()).unwrap_or(i64::MAX));
    let values = [Value::Text(after), Value::Text(&start), Value::Text(&end), limit];
    let key = if is_literal { shedlock::listed_key } else { LockKey::from_stored };
    page_of(listing, &prefix, &session.ask(&context.statements.list, &values).await?.rows, key)
}

/// The record comes first, so that a holder which hears of its loss finds it.
pub(crate) async fn break_hold<D: Dialect>(
    session: &mut StatementSession<D>,
    key: &LockKey,
    id: HoldId,
    record: &BreakRecord,
) -> Result<bool> {
    let (hold, context) = (id.to_string(), session.context.clone());
    let row = context.row_name(key)?;
    let named = [Value::Text(&row.name), Value::Text(&hold)];
    let left = [named[0], named[1], Value::Text(record.as_str()), Value::Int(micros(SHORTEST_KEEP))];
    let is_new = session.insert(&context.statements.leave_record, &left).await?.is_some();
    let asked = session.ask_for_change(&context.statements.break_hold, &named).await?;
    let is_broken = asked.answer.changed > 0;
    if let Some(error) = asked.again.filter(|_| !is_broken) {
        // The first request may have broken it. The record stays: it names a hold that was to be broken.
        return Err(context.dialect.fault(error));
    }
    if is_new && !is_broken {
        session.ask(&context.statements.take_back, &named[1..]).await?;
    }
    Ok(is_broken)
}

pub(crate) async fn record_of<D: Dialect>(
    session: &mut StatementSession<D>,
    id: HoldId,
) -> Result<Option<BreakRecord>> {
    let (hold, context) = (id.to_string(), session.context.clone());
    let answer = session.ask(&context.statements.record, &[Value::Text(&hold)]).await?;
    let record = answer.rows.first().and_then(|row| row.first());
    Ok(record.map(|record| BreakRecord::from_stored(record.text())))
}
