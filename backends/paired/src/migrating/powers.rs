//! The powers of a migration: those that both stores have. Each request goes to both stores.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Keeps, LastSuccess, LockKey, Periods, Released, Result, RunEnd};
use futures::future::BoxFuture;

use crate::migrating::Migrating;

impl Keeps for Migrating {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |store, hold| match store.keeps() {
            Some(keeps) => keeps.keep(hold, time, run),
            None => Box::pin(async { Err(power_withdrawn("keeps")) }),
        }))
    }
}

impl Periods for Migrating {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |store, hold| match store.periods() {
            Some(periods) => periods.end_run(hold, run),
            None => Box::pin(async { Err(power_withdrawn("periods")) }),
        }))
    }

    /// The later success of both stores: a process that uses only the old store records its runs only there.
    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move {
            let [old, new] = [&self.stores.first, &self.stores.second].map(|store| store.periods());
            let old = old.ok_or_else(|| power_withdrawn("periods"))?.last_success(key);
            let new = new.ok_or_else(|| power_withdrawn("periods"))?.last_success(key);
            let (old, new) = futures::join!(old, new);
            let old = old.map_err(|error| self.stores.error_of_first(error))?;
            let new = new.map_err(|error| self.stores.error_of_second(error))?;
            Ok(old.into_iter().chain(new).max_by_key(|run| run.started))
        })
    }
}

/// The error if a store that offered a power no longer does.
fn power_withdrawn(power: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("a store no longer offers the power `{power}`"))
}
