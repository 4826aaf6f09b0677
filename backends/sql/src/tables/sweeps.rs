//! The pace of sweeps, which delete the rows of unused locks.

use std::time::Duration;

use dlock_contract::{ErrorKind, Result};
use dlock_store::{Clock, line};

/// Waits until the next sweep. Processes that were started together do not sweep together.
pub(crate) async fn until_next(clock: &Clock, every: Duration) {
    clock.sleep_until(clock.now().after(every.mul_f64(0.75 + fastrand::f64() / 2.0))).await;
}

/// Tells the log of a sweep that has failed. The next one finds the same rows. False if there is to be none, because the account
/// may not delete.
pub(crate) fn go_on(swept: Result<()>) -> bool {
    let Err(error) = swept else { return true };
    let may_delete = *error.kind() != ErrorKind::PermissionDenied;
    line(move || match may_delete {
        true => tracing::debug!(%error, "rows of unused locks were not swept this time"),
        false => tracing::info!("rows of unused locks are not swept: the account may not DELETE from dlock's tables"),
    });
    may_delete
}
