//! Opens a session that is to have holds.

use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::Clock;

use crate::connection::misread::unless_misread;

/// Ends an opening that takes too long. Nothing was asked for if it fails.
pub(crate) async fn opened<T>(clock: &Clock, limit: Duration, opening: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::outage(format!("the server did not accept a connection within {limit:?}"));
    let opened = clock.timeout_at(clock.now().after(limit), unless_misread(opening)).await;
    opened.ok_or_else(late).flatten().map_err(Error::never_sent)
}
