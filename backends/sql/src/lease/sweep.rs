//! Deletes rows of keys that nobody has used for long, and old records of broken holds.
//!
//! One process at a time sweeps a store. It walks over the index on the day on which a lease ended, a page at a time, so
//! that no other caller waits for it, and rows of keys in use are not read. A swept key loses no promise: the highest token that was swept is noted before, and a row that is made anew begins
//! above it.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::Result;

use crate::connection::pool::Pool;
use crate::connection::session::{StatementSession, StoreContext};
use crate::connection::sweeps::{PAGE_PAUSE, take_turn_to_sweep};
use crate::dialect::{Dialect, Value};
use crate::tables::numbers::micros;
use crate::tables::statements::{PAGE_ROWS, of_size};

/// No lease has ended on this day.
const FIRST_DAY: i64 = -1;

/// Keys with runs stay as long as this: a schedule may have a period of a year.
const RUN_RECORD_LIFETIME: Duration = Duration::from_secs(400 * 24 * 3600);

/// Sweeps once, unless another process has swept in this period.
pub(crate) async fn sweep<D: Dialect>(context: Arc<StoreContext<D>>, pool: Arc<Pool<D>>) -> Result<()> {
    let statements = context.clone();
    let turn = pool.run(move |session| {
        Box::pin(async move { take_turn_to_sweep(session, "sweep", &statements.statements.take_sweep).await })
    });
    if !turn.await? {
        return Ok(());
    }
    let mut after = Some((FIRST_DAY, String::new()));
    while let Some((day, name)) = after {
        let page = pool.run(move |session| Box::pin(async move { page(session, day, &name).await })).await?;
        let largest = context.statements.sweep.last().map_or(1, |(size, _)| *size);
        for names in page.unused.chunks(largest) {
            // One row that somebody keeps locked would keep all the others.
            if !delete(&pool, names).await? && names.len() > 1 {
                for name in names {
                    delete(&pool, std::slice::from_ref(name)).await?;
                }
            }
        }
        after = page.last;
        context.clock.sleep_until(context.clock.now().after(PAGE_PAUSE)).await;
    }
    Ok(())
}

/// A page of rows whose leases ended long ago.
struct Page {
    /// The names of those to delete.
    unused: Vec<String>,
    /// The day and name of the last one, if there are more pages.
    last: Option<(i64, String)>,
}

/// Reads the page that follows this day and name, and notes the tokens of the rows to delete.
async fn page<D: Dialect>(session: &mut StatementSession<D>, day: i64, name: &str) -> Result<Page> {
    let context = session.context.clone();
    if day == FIRST_DAY {
        session.ask_unless_locked(&context.statements.sweep_breaks, &[]).await?;
    }
    let [after, runs] = limits(&context);
    let rows =
        session.ask(&context.statements.sweep_page, &[after, runs, Value::Int(day), Value::Text(name)]).await?.rows;
    let unused: Vec<_> = rows.iter().filter(|row| row.get(2).is_some_and(|is_unused| is_unused.is_true())).collect();
    if let Some(token) = unused.iter().filter_map(|row| row.get(1)?.int()).max() {
        // First, so that no row is gone whose token is not noted.
        session.ask(&context.statements.note_swept, &[Value::Int(token)]).await?;
    }
    let unused = unused.iter().filter_map(|row| Some(row.first()?.text().to_owned())).collect();
    let last = rows.last().filter(|_| rows.len() >= PAGE_ROWS);
    Ok(Page { unused, last: last.and_then(|row| Some((row.get(3)?.int()?, row.first()?.text().to_owned()))) })
}

/// Deletes these rows. False: somebody keeps one of them locked, and none is deleted.
async fn delete<D: Dialect>(pool: &Arc<Pool<D>>, names: &[String]) -> Result<bool> {
    let names = names.to_vec();
    pool.run(move |session| {
        Box::pin(async move {
            let context = session.context.clone();
            let (size, sweep) = of_size(&context.statements.sweep, names.len());
            let mut values = limits(&context).to_vec();
            values.extend((0..size).map(|place| Value::Text(&names[place.min(names.len() - 1)])));
            session.ask_unless_locked(sweep, &values).await.map(|deleted| deleted.is_some())
        })
    })
    .await
}

fn limits<D>(context: &StoreContext<D>) -> [Value<'static>; 2] {
    [Value::Int(micros(context.settings.sweep_after)), Value::Int(micros(RUN_RECORD_LIFETIME))]
}
