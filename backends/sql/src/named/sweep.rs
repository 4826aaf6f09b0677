//! Deletes rows of keys that nobody has used for long.
//!
//! As for lease rows: one process at a time, and a page of the primary key at a time. Where a row draws the tokens, the highest
//! one that was swept is noted before, so that a row which is made anew begins above it.

use std::sync::Arc;

use dlock_contract::Result;

use super::context::NamedContext;
use super::dialect::NamedDialect;
use super::requests::run;
use super::shared::NamedShared;
use crate::connection::sweeps::PAGE_PAUSE;
use crate::dialect::{Answer, OwnedValue, Refusal, Value};
use crate::tables::numbers::micros;
use crate::tables::statements::PAGE_ROWS;
use crate::tables::words::Statement;

/// Sweeps once, unless another process has swept in this period.
pub(super) async fn sweep<D: NamedDialect>(store: Arc<NamedShared<D>>) -> Result<()> {
    let store = &*store;
    if !store.look(|context, conn| Box::pin(take_turn_to_sweep(context, conn))).await? {
        return Ok(());
    }
    let (statements, sweep_after) = (&store.context.statements, micros(store.context.settings.sweep_after));
    // The tokens of readers and writers are not theirs alone: each is in the key's row too.
    if let Some(read_write) = &statements.read_write {
        ask(store, &read_write.sweep, vec![OwnedValue::Int(sweep_after)]).await?;
    }
    let mut after = String::new();
    loop {
        let place = vec![OwnedValue::Int(sweep_after), OwnedValue::Text(after)];
        let page = ask(store, &statements.sweep_page, place).await?.unwrap_or_default().rows;
        let unused = || page.iter().filter(|row| row.get(2).is_some_and(|is_unused| is_unused.is_true()));
        if statements.sequence.is_none()
            && let Some(token) = unused().filter_map(|row| row.get(1)?.int()).max()
            // First, so that no row is gone whose token is not noted.
            && ask(store, &store.context.common.note_swept, vec![OwnedValue::Int(token)]).await?.is_none()
        {
            return Ok(());
        }
        for row in unused() {
            if let [name, token, ..] = &row[..]
                && let Some(token) = token.int()
            {
                let values = vec![OwnedValue::Text(name.text().to_owned()), OwnedValue::Int(token)];
                ask(store, &statements.sweep, values).await?;
            }
        }
        let last = page.last().filter(|_| page.len() >= PAGE_ROWS).and_then(|row| row.first());
        let Some(last) = last else { return Ok(()) };
        after = last.text().to_owned();
        store.context.clock.sleep_until(store.context.clock.now().after(PAGE_PAUSE)).await;
    }
}

/// Runs a statement as a request of its own, so that renewals in the same session come in between. `None` if somebody keeps the
/// row locked: the next sweep finds it again.
async fn ask<D: NamedDialect>(
    store: &NamedShared<D>,
    statement: &Statement,
    values: Vec<OwnedValue>,
) -> Result<Option<Answer>> {
    let asked = Arc::new((statement.clone(), values));
    store
        .look(move |context, conn| {
            let asked = asked.clone();
            Box::pin(async move {
                let values: Vec<_> = asked.1.iter().map(OwnedValue::value).collect();
                match run(context, conn, &asked.0, &values).await {
                    Err(error) if context.dialect.refusal(&error) == Refusal::RowLocked => Ok(None),
                    answer => answer.map(Some),
                }
            })
        })
        .await
}

/// Whether no other process has swept in this period.
async fn take_turn_to_sweep<D: NamedDialect>(context: &NamedContext<D>, conn: &mut D::Conn) -> sqlx::Result<bool> {
    for name in ["sweep_named", "swept"] {
        let made = run(context, conn, &context.common.write_meta, &[Value::Text(name), Value::Text("")]).await;
        if let Err(error) = made
            && context.dialect.refusal(&error) != Refusal::Duplicate
        {
            return Err(error);
        }
    }
    let period = Value::Int(micros(context.settings.sweep_every / 2));
    Ok(run(context, conn, &context.statements.take_sweep, &[period]).await?.changed > 0)
}
