//! The powers of a pair are those of its authority which need one request: to end a hold in another way, and to inspect.
//!
//! A hold that is passed on inside of a process, a release that asks for the next caller and several locks in one step would
//! need both stores in one step, so a pair does not offer them.

use std::time::Duration;

use dlock_contract::{
    BreakRecord, Error, ErrorKind, Hold, HoldId, Inspect, Keeps, LastSuccess, Listing, LockKey, Page, Periods,
    Released, Result, RunEnd,
};
use futures::future::BoxFuture;

use crate::paired::Paired;

impl Keeps for Paired {
    /// The authority keeps the key. The gate is freed, so the first waiter waits at the authority.
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |authority, hold| match authority.keeps() {
            Some(keeps) => keeps.keep(hold, time, run),
            None => Box::pin(async { Err(withdrawn("keeps")) }),
        }))
    }
}

impl Periods for Paired {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, move |authority, hold| match authority.periods() {
            Some(periods) => periods.end_run(hold, run),
            None => Box::pin(async { Err(withdrawn("periods")) }),
        }))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move {
            let periods = self.stores.second.periods().ok_or_else(|| withdrawn("periods"))?;
            periods.last_success(key).await.map_err(|error| self.stores.by_second(error))
        })
    }
}

impl Inspect for Paired {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move { self.inspected()?.list(listing).await.map_err(|error| self.stores.by_second(error)) })
    }

    /// A hold has one id in both stores, since both know it by one owner.
    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let broken = self.inspected()?.break_hold(key, id, record).await;
            let broken = broken.map_err(|error| self.stores.by_second(error))?;
            if let (true, Some(gate)) = (broken, self.stores.first.inspect()) {
                // Without it a waiter comes through the gate when the holder hears of its loss, or at the ttl.
                let by = self.stores.clock.now().after(Duration::from_secs(1));
                let _ = self.stores.clock.timeout_at(by, gate.break_hold(key, id, record)).await;
            }
            Ok(broken)
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            let (_, in_authority) = self.stores.parts(hold)?;
            self.inspected()?.record_of(&in_authority).await.map_err(|error| self.stores.by_second(error))
        })
    }
}

impl Paired {
    fn inspected(&self) -> Result<&dyn Inspect> {
        self.stores.second.inspect().ok_or_else(|| withdrawn("inspect"))
    }
}

/// The authority offered it when the pair was asked for it.
fn withdrawn(power: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the authority no longer offers the power `{power}`"))
}
