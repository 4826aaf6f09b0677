//! The powers of a pair are those of its authority.

use std::time::Duration;

use dlock_contract::{
    BreakRecord, Error, ErrorKind, Hold, HoldId, Inspect, Keeps, LastSuccess, Listing, LockKey, Page, Periods, Released,
    Reservation, Reserved, Result, RunEnd, Tokens,
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

impl Tokens for Paired {
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move {
            let tokens = self.stores.second.tokens().ok_or_else(|| withdrawn("tokens"))?;
            let (both, in_authority) = self.stores.parts(hold)?;
            self.stores.renew_gate(std::iter::once(both.clone()));
            let reserved = tokens.reserve(&in_authority, asked).await;
            let reserved = reserved.map_err(|error| self.stores.by_second(error))?;
            if reserved == Reserved::Lost {
                self.stores.leave_gate_later(&both, &hold.claim);
            }
            Ok(reserved)
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
