//! Inspection: the holder of a lock, listings of held locks, and breaking a hold.

use std::time::Duration;

use dlock_contract::{BreakRecord, HoldId, Listing, LockKey, LockState, Page, Result};

use crate::connection::session::StatementSession;
use crate::dialect::{Dialect, OwnedValue, Value};
use crate::listing::{holder_of, page_of, range_of, record_in, values_of};
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
        let left = left.int().and_then(|left| u64::try_from(left).ok());
        Ok(holder_of([note, hold, token]).with(|holder| holder.lease_left = left.map(Duration::from_micros)))
    });
    // Waiters poll; nobody counts them.
    Ok(LockState::new(holders.collect::<Result<_>>()?, None))
}

pub(crate) async fn list<D: Dialect>(session: &mut StatementSession<D>, listing: &Listing) -> Result<Page> {
    let context = session.context.clone();
    let is_literal = context.dialect.shedlock().is_some();
    let (prefix, start, end) = if is_literal { shedlock::range_of(listing) } else { range_of(listing)? };
    let values = values_of(listing, start, end);
    let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
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
    Ok(record_in(&answer))
}
