//! Deletes rows of keys that nobody has used for long.
//!
//! As for lease rows: one process at a time, and a page of the primary key at a time. Where a row draws the tokens, the highest
//! one that was swept is noted before, so that a row which is made anew begins above it.

use std::sync::Weak;
use std::time::Duration;

use dlock_contract::engine::line;
use dlock_contract::{ErrorKind, Result};

use super::dialect::NamedDialect;
use super::requests::run;
use super::shared_session::NamedContext;
use super::store::NamedShared;
use crate::dialect::{Refusal, Value};
use crate::numbers::micros;
use crate::statements::PAGE;

/// The pause between two pages.
const PAUSE: Duration = Duration::from_millis(100);

/// Sweeps now and then, for as long as the store lives.
pub(super) async fn sweep_for_ever<D: NamedDialect>(store: Weak<NamedShared<D>>) {
    while let Some((clock, every)) =
        store.upgrade().map(|store| (store.context.clock.clone(), store.context.settings.sweep_every))
    {
        // Processes that were started together do not ask together.
        clock.sleep_until(clock.now().after(every.mul_f64(0.75 + fastrand::f64() / 2.0))).await;
        let Some(store) = store.upgrade() else { return };
        match sweep(&store).await {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                line(|| {
                    tracing::info!("rows of unused locks are not swept: the account may not DELETE from dlock's table");
                });
                return;
            }
            // The next sweep does it.
            Ok(()) | Err(_) => {}
        }
    }
}

async fn sweep<D: NamedDialect>(store: &NamedShared<D>) -> Result<()> {
    if !store.look(|context, conn| Box::pin(takes_turn(context, conn))).await? {
        return Ok(());
    }
    store.look(|context, conn| Box::pin(sweep_read_write(context, conn))).await?;
    let mut after = Some(String::new());
    while let Some(place) = after {
        after = store
            .look(move |context, conn| {
                let place = place.clone();
                Box::pin(async move { sweep_page(context, conn, &place).await })
            })
            .await?;
        store.context.clock.sleep_until(store.context.clock.now().after(PAUSE)).await;
    }
    Ok(())
}

/// Whether no other process has swept in this period.
async fn takes_turn<D: NamedDialect>(context: &NamedContext<D>, conn: &mut D::Conn) -> sqlx::Result<bool> {
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

/// Sweeps a page of the rows that readers and writers have left. The tokens are not theirs alone: each is in the key's row too.
async fn sweep_read_write<D: NamedDialect>(context: &NamedContext<D>, conn: &mut D::Conn) -> sqlx::Result<()> {
    let Some(read_write) = &context.statements.read_write else { return Ok(()) };
    run(context, conn, &read_write.sweep, &[Value::Int(micros(context.settings.sweep_after))]).await.map(drop)
}

/// Sweeps the rows of one page, and gives the last name of it if there are more.
async fn sweep_page<D: NamedDialect>(
    context: &NamedContext<D>,
    conn: &mut D::Conn,
    after: &str,
) -> sqlx::Result<Option<String>> {
    let limits = [Value::Int(micros(context.settings.sweep_after)), Value::Text(after)];
    let page = run(context, conn, &context.statements.sweep_page, &limits).await?.rows;
    let unused = || page.iter().filter(|row| row.get(2).is_some_and(|is_unused| is_unused.is_true()));
    if context.statements.sequence.is_none()
        && let Some(token) = unused().filter_map(|row| row.get(1)?.int()).max()
    {
        // First, so that no row is gone whose token is not noted.
        run(context, conn, &context.common.note_swept, &[Value::Int(token)]).await?;
    }
    for row in unused() {
        if let [name, token, ..] = &row[..]
            && let Some(token) = token.int()
        {
            run(context, conn, &context.statements.sweep, &[Value::Text(name.text()), Value::Int(token)]).await?;
        }
    }
    let last = page.last().filter(|_| page.len() >= PAGE).and_then(|row| row.first());
    Ok(last.map(|name| name.text().to_owned()))
}
