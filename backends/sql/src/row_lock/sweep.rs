//! Deletes records of keys that nobody has used for long, and the rows of dlock's own table that belong to them.
//!
//! As for lease rows: one process at a time, a page of the primary key at a time, and the highest token that was swept is
//! noted before, so that a record which is made anew begins above it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::engine::line;
use dlock_contract::{ErrorKind, Result};

use super::dialect::RowDialect;
use super::shared::RowShared;
use super::statements::RowStatements;
use crate::dialect::Value;
use crate::numbers::micros;
use crate::session::StatementSession;
use crate::statements::PAGE;

/// The pause between two pages.
const PAUSE: Duration = Duration::from_millis(100);

/// Sweeps now and then, for as long as the store lives.
pub(super) async fn sweep_for_ever<D: RowDialect>(store: Weak<RowShared<D>>) {
    while let Some((clock, every)) =
        store.upgrade().map(|store| (store.context.clock.clone(), store.context.settings.sweep_every))
    {
        // Processes that were started together do not ask together.
        clock.sleep_until(clock.now().after(every.mul_f64(0.75 + fastrand::f64() / 2.0))).await;
        let Some(store) = store.upgrade() else { return };
        match sweep(&store).await {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                line(|| {
                    tracing::info!(
                        "rows of unused locks are not swept: the account may not DELETE from dlock's tables"
                    );
                });
                return;
            }
            // The next sweep does it.
            Ok(()) | Err(_) => {}
        }
    }
}

async fn sweep<D: RowDialect>(store: &RowShared<D>) -> Result<()> {
    let statements = store.statements.clone();
    if !store.pool.run(move |session| Box::pin(async move { takes_turn(&statements, session).await })).await? {
        return Ok(());
    }
    let mut after = Some((String::new(), String::new()));
    while let Some(place) = after {
        let (statements, is_own) = (store.statements.clone(), store.table.is_own);
        let page = store
            .pool
            .run(move |session| Box::pin(async move { sweep_page(&statements, session, &place, is_own).await }));
        after = page.await?;
        store.context.clock.sleep_until(store.context.clock.now().after(PAUSE)).await;
    }
    Ok(())
}

/// Whether no other process has swept in this period.
async fn takes_turn<D: RowDialect>(statements: &Arc<RowStatements>, session: &mut StatementSession<D>) -> Result<bool> {
    let context = session.context.clone();
    for name in ["sweep_rows", "swept"] {
        session.insert(&context.statements.write_meta, &[Value::Text(name), Value::Text("")]).await?;
    }
    let period = Value::Int(micros(context.settings.sweep_every / 2));
    Ok(session.ask(&statements.take_sweep, &[period]).await?.changed > 0)
}

/// Sweeps the records of one page, and gives the last place of it if there are more.
async fn sweep_page<D: RowDialect>(
    statements: &Arc<RowStatements>,
    session: &mut StatementSession<D>,
    (name, part): &(String, String),
    is_own: bool,
) -> Result<Option<(String, String)>> {
    let context = session.context.clone();
    let limits = [Value::Int(micros(context.settings.sweep_after)), Value::Text(name), Value::Text(part)];
    let page = session.ask(&statements.sweep_page, &limits).await?.rows;
    let unused = || page.iter().filter(|row| row.get(3).is_some_and(|is_unused| is_unused.is_true()));
    if let Some(token) = unused().filter_map(|row| row.get(2)?.int()).max() {
        // First, so that no record is gone whose token is not noted.
        session.ask(&context.statements.note_swept, &[Value::Int(token)]).await?;
    }
    for row in unused() {
        if let [name, part, token, ..] = &row[..]
            && let Some(token) = token.int()
        {
            let values = [Value::Text(name.text()), Value::Text(part.text()), Value::Int(token)];
            let is_swept = session.ask(&statements.sweep, &values).await?.changed > 0;
            // If the record stays, a holder may keep its row locked: MariaDB would let this wait, and each sweep would end there.
            // The rows of a table of the user's own are the user's.
            if is_swept && !is_own && session.ask(&statements.is_recorded, &values[..1]).await?.rows.is_empty() {
                session.ask(&statements.sweep_key, &values[..1]).await?;
            }
        }
    }
    let last = page.last().filter(|_| page.len() >= PAGE);
    Ok(last.and_then(|row| Some((row.first()?.text().to_owned(), row.get(1)?.text().to_owned()))))
}
