//! The pace of sweeps, which delete the rows of unused locks, and whose turn it is.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::{ErrorKind, Result};
use dlock_store::Clock;
use dlock_store::line;

use crate::connection::session::StatementSession;
use crate::dialect::{Dialect, Value};
use crate::tables::numbers::micros;
use crate::tables::words::Statement;

/// The pause between two pages of a table.
pub(crate) const PAGE_PAUSE: Duration = Duration::from_millis(100);

/// Sweeps now and then, for as long as the store lives.
pub(crate) async fn sweep_for_ever<S, F>(clock: Clock, every: Duration, store: Weak<S>, sweep: impl Fn(Arc<S>) -> F)
where
    F: Future<Output = Result<()>>,
{
    loop {
        until_next(&clock, every).await;
        let Some(store) = store.upgrade() else { return };
        if !go_on(sweep(store).await) {
            return;
        }
    }
}

/// Whether no other process has swept in this period. `take` takes the turn of this name.
pub(crate) async fn take_turn_to_sweep<D: Dialect>(
    session: &mut StatementSession<D>,
    turn: &str,
    take: &Statement,
) -> Result<bool> {
    let context = session.context.clone();
    for name in [turn, "swept"] {
        session.insert(&context.statements.write_meta, &[Value::Text(name), Value::Text("")]).await?;
    }
    let period = Value::Int(micros(context.settings.sweep_every / 2));
    Ok(session.ask(take, &[period]).await?.changed > 0)
}

/// Waits until the next sweep. Processes that were started together do not sweep together.
async fn until_next(clock: &Clock, every: Duration) {
    clock.sleep_until(clock.now().after(every.mul_f64(0.75 + fastrand::f64() / 2.0))).await;
}

/// Tells the log of a sweep that has failed. The next one finds the same rows. False if there is to be none, because the account
/// may not delete, or the store was closed.
fn go_on(swept: Result<()>) -> bool {
    let Err(error) = swept else { return true };
    if *error.kind() == ErrorKind::ShutDown {
        return false;
    }
    let may_delete = *error.kind() != ErrorKind::PermissionDenied;
    line(move || match may_delete {
        true => tracing::debug!(%error, "rows of unused locks were not swept this time"),
        false => tracing::info!("rows of unused locks are not swept: the account may not DELETE from dlock's tables"),
    });
    may_delete
}
