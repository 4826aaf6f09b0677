//! The powers of a pair: those of its authority that need one request, which end a hold in another way or inspect locks.
//!
//! A pair does not offer the other powers, because they would need one step in both stores: passing a hold on inside a
//! process, a release that also acquires for the next caller, and several locks at once.

use std::time::Duration;

use dlock_contract::{
    BreakRecord, Error, ErrorKind, Hold, HoldId, Inspect, Keeps, LastSuccess, Listing, LockKey, Page, Periods,
    Released, Result, RunEnd,
};
use futures::future::BoxFuture;

use crate::paired::Paired;

impl Keeps for Paired {
    /// The authority keeps the key. The gate is freed, so its first waiter then waits at the authority.
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |authority, hold| match authority.keeps() {
            Some(keeps) => keeps.keep(hold, time, run),
            None => Box::pin(async { Err(power_withdrawn("keeps")) }),
        }))
    }
}

impl Periods for Paired {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |authority, hold| match authority.periods() {
            Some(periods) => periods.end_run(hold, run),
            None => Box::pin(async { Err(power_withdrawn("periods")) }),
        }))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move {
            let periods = self.stores.second.periods().ok_or_else(|| power_withdrawn("periods"))?;
            periods.last_success(key).await.map_err(|error| self.stores.error_of_second(error))
        })
    }
}

impl Inspect for Paired {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(
            async move { self.inspected()?.list(listing).await.map_err(|error| self.stores.error_of_second(error)) },
        )
    }

    /// A hold has the same id in both stores, because it has the same owner there.
    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let broken = self.inspected()?.break_hold(key, id, record).await;
            let broken = broken.map_err(|error| self.stores.error_of_second(error))?;
            if let (true, Some(gate)) = (broken, self.stores.first.inspect()) {
                // If this fails, the gate admits the next waiter when the holder learns of its loss, or at the ttl.
                let by = self.stores.clock.now().after(Duration::from_secs(1));
                let _ = self.stores.clock.timeout_at(by, gate.break_hold(key, id, record)).await;
            }
            Ok(broken)
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            let (_, in_authority) = self.stores.parts(hold)?;
            self.inspected()?.record_of(&in_authority).await.map_err(|error| self.stores.error_of_second(error))
        })
    }
}

impl Paired {
    fn inspected(&self) -> Result<&dyn Inspect> {
        self.stores.second.inspect().ok_or_else(|| power_withdrawn("inspect"))
    }
}

/// The error if the authority offered a power and no longer does.
fn power_withdrawn(power: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the authority no longer offers the power `{power}`"))
}
