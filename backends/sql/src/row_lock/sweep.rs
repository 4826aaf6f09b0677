//! Deletes records of keys that nobody has used for long, and the rows of dlock's own table that belong to them.
//!
//! As for lease rows: one process at a time, a page of the primary key at a time, and the highest token that was swept is
//! noted before, so that a record which is made anew begins above it. Each statement is a request of its own: on a slow link, or
//! behind a row that somebody keeps locked, the sweep goes on.

use std::sync::Arc;

use dlock_contract::Result;

use super::dialect::RowDialect;
use super::shared::RowShared;
use crate::connection::sweeps::{PAGE_PAUSE, take_turn_to_sweep};
use crate::dialect::{Answer, OwnedValue};
use crate::tables::numbers::micros;
use crate::tables::statements::PAGE_ROWS;
use crate::tables::words::Statement;

/// Sweeps once, unless another process has swept in this period.
pub(super) async fn sweep<D: RowDialect>(store: Arc<RowShared<D>>) -> Result<()> {
    let statements = store.statements.clone();
    let turn = store.pool.run(move |session| {
        Box::pin(async move { take_turn_to_sweep(session, "sweep_rows", &statements.take_sweep).await })
    });
    if !turn.await? {
        return Ok(());
    }
    sweep_records(&store).await?;
    // The rows of a table of the user's own are the user's.
    if store.table.is_own { Ok(()) } else { sweep_keys(&store).await }
}

async fn sweep_records<D: RowDialect>(store: &RowShared<D>) -> Result<()> {
    let sweep_after = OwnedValue::Int(micros(store.context.settings.sweep_after));
    let (mut name, mut part) = (String::new(), String::new());
    loop {
        let place = vec![sweep_after.clone(), OwnedValue::Text(name), OwnedValue::Text(part)];
        let page = ask(store, &store.statements.sweep_page, place).await?.unwrap_or_default().rows;
        let unused = || page.iter().filter(|row| row.get(3).is_some_and(|is_unused| is_unused.is_true()));
        if let Some(token) = unused().filter_map(|row| row.get(2)?.int()).max()
            // First, so that no record is gone whose token is not noted.
            && ask(store, &store.context.statements.note_swept, vec![OwnedValue::Int(token)]).await?.is_none()
        {
            return Ok(());
        }
        for row in unused() {
            if let [name, part, token, ..] = &row[..]
                && let Some(token) = token.int()
            {
                let [name, part] = [name, part].map(|text| OwnedValue::Text(text.text().to_owned()));
                ask(store, &store.statements.sweep, vec![name, part, OwnedValue::Int(token)]).await?;
            }
        }
        let Some([last_name, last_part, ..]) = page.last().filter(|_| page.len() >= PAGE_ROWS).map(Vec::as_slice)
        else {
            return Ok(());
        };
        (name, part) = (last_name.text().to_owned(), last_part.text().to_owned());
        store.context.clock.sleep_until(store.context.clock.now().after(PAGE_PAUSE)).await;
    }
}

/// Deletes the rows of locks that have no record, also those that an earlier sweep or a process that died has left.
async fn sweep_keys<D: RowDialect>(store: &RowShared<D>) -> Result<()> {
    let mut after = String::new();
    loop {
        let page =
            ask(store, &store.statements.key_page, vec![OwnedValue::Text(after)]).await?.unwrap_or_default().rows;
        for row in page.iter().filter(|row| row.get(1).is_some_and(|is_unused| is_unused.is_true())) {
            ask(store, &store.statements.sweep_key, vec![OwnedValue::Text(row[0].text().to_owned())]).await?;
        }
        let Some(last) = page.last().filter(|_| page.len() >= PAGE_ROWS) else { return Ok(()) };
        after = last[0].text().to_owned();
        store.context.clock.sleep_until(store.context.clock.now().after(PAGE_PAUSE)).await;
    }
}

/// Runs a statement. `None` if somebody keeps the row locked: the next sweep finds it again.
async fn ask<D: RowDialect>(
    store: &RowShared<D>,
    statement: &Statement,
    values: Vec<OwnedValue>,
) -> Result<Option<Answer>> {
    let statement = statement.clone();
    let asking = store.pool.run(move |session| {
        Box::pin(async move {
            let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
            session.ask_unless_locked(&statement, &values).await
        })
    });
    asking.await
}
