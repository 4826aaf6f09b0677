//! The powers of the store with faults.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Batch, BootInstant, BreakRecord, Claim, Exchange, Hold, Inspect, Keeps, Listing, Page, Periods, Released,
    Reservation, Reserved, RunEnd, Settle, Together, Tokens,
};
use dlock_runtime::{Error, ErrorKind, HoldId, LastSuccess, LockKey, Note, Result};
use futures::future::BoxFuture;

use super::super::steps::{Op, Step};
use super::{Faulty, panic_if};

impl Keeps for Faulty {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        let step = self.step(Op::Release);
        panic_if(step);
        Box::pin(async move { self.fault(step, self.memory.keep(hold, time, run)).await? })
    }
}

impl Periods for Faulty {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        let step = self.step(Op::Release);
        panic_if(step);
        Box::pin(async move { self.fault(step, self.memory.end_run(hold, run)).await? })
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        self.memory.last_success(key)
    }
}

impl Tokens for Faulty {
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        let step = self.step(Op::Reserve);
        panic_if(step);
        Box::pin(async move { self.fault(step, self.memory.reserve(hold, asked)).await? })
    }
}

impl Exchange for Faulty {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        self.step(Op::Carry);
        let step = self.step(Op::Release);
        panic_if(step);
        Box::pin(async move { self.fault(step, self.memory.release_to(hold, next, until)).await? })
    }
}

impl Settle for Faulty {
    fn has_work(&self, hold: &Hold) -> bool {
        self.state.lock().unwrap().worked.contains(&hold.claim.key)
    }

    fn settle<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<()>> {
        let step = self.step(Op::Settle);
        panic_if(step);
        Box::pin(async move {
            if let Step::Refuse = step {
                return Err(Error::new(ErrorKind::CommitRefused, "scripted refusal"));
            }
            let settle = async { self.state.lock().unwrap().settled.push(hold.claim.key.clone()) };
            self.fault(step, settle).await
        })
    }
}

impl Batch for Faulty {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        let step = self.step(Op::Together);
        panic_if(step);
        Box::pin(async move {
            let mut answer = self.fault(step, self.memory.try_acquire_all(claims)).await??;
            if let Together::Acquired(holds) = &mut answer {
                let meanwhile = self.state.lock().unwrap().meanwhile.take();
                meanwhile.into_iter().for_each(|work| work());
                if let Step::Fewer = step {
                    holds.pop();
                }
            }
            Ok(answer)
        })
    }
}

impl Inspect for Faulty {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Inspect::list(&self.memory, listing)
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        self.memory.break_hold(key, id, record)
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        self.memory.waiters(key, limit)
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        let step = self.step(Op::Record);
        panic_if(step);
        Box::pin(async move { self.fault(step, self.memory.record_of(hold)).await? })
    }
}
