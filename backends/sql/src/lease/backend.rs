//! The contract's requests: each becomes a job on a connection.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, BreakRecord, Claim, Exchange, Health, Hold, HoldId, Identity, Inspect, Keeps, LastSuccess,
    Listing, LockKey, LockState, Page, Periods, Profile, Queue, Released, Result, RunEnd, Standing,
};
use futures::future::{BoxFuture, join_all};

use crate::dialect::Dialect;
use crate::lease::renewals::{Renewal, batches, renew, unknown};
use crate::lease::store::LeaseRow;
use crate::lease::{ending, inspect};

impl<D: Dialect> Backend for LeaseRow<D> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.context.dialect.host())
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        let row = self.context.row_name(key)?;
        Ok(match self.context.dialect.shedlock() {
            // Keys of one name are one lock.
            Some(_) => Identity::of(&key.literal()?),
            None => Identity::of(key).named(row.name),
        })
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.acquire(claim, queue))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let renewals: Result<Vec<_>> = holds.iter().map(|hold| Renewal::of(&self.context, hold)).collect();
            let renewals = match renewals {
                Ok(renewals) => renewals,
                Err(error) => return holds.iter().map(|_| Err(unknown(&error))).collect(),
            };
            let batches = batches(&renewals);
            let answers = join_all(batches.iter().map(|places| {
                let batch: Vec<_> = places.iter().map(|place| renewals[*place].clone()).collect();
                self.renewals.run(move |session| Box::pin(async move { Ok(renew(session, &batch).await) }))
            }));
            let mut standings: Vec<_> = holds.iter().map(|_| Ok(Standing::Lost)).collect();
            for (places, answer) in batches.iter().zip(answers.await) {
                match answer {
                    Ok(answers) => {
                        for (place, answer) in places.iter().zip(answers) {
                            standings[*place] = answer;
                        }
                    }
                    Err(error) => places.iter().for_each(|place| standings[*place] = Err(unknown(&error))),
                }
            }
            standings
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.free(hold))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.undo(claim))
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let key = key.clone();
        Box::pin(self.run(move |session| Box::pin(async move { inspect::look(session, &key).await })))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.run(|session| Box::pin(session.health())))
    }

    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        let (ways, key) = (self.ways.clone(), key.clone());
        Box::pin(self.run(move |session| Box::pin(async move { session.has_way(&ways, &key).await.map(drop) })))
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        self.wait_queue.is_supported().then_some(self as &dyn Exchange)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.close_pools();
        Box::pin(std::future::ready(()))
    }
}

impl<D: Dialect> Keeps for LeaseRow<D> {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, time, run))
    }
}

impl<D: Dialect> Periods for LeaseRow<D> {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Keeps::keep(self, hold, Duration::ZERO, Some(run))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        let key = key.clone();
        Box::pin(self.run(move |session| Box::pin(async move { ending::last_success(session, &key).await })))
    }
}

impl<D: Dialect> Inspect for LeaseRow<D> {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        let listing = listing.clone();
        Box::pin(self.run(move |session| Box::pin(async move { inspect::list(session, &listing).await })))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        let (key, record) = (key.clone(), record.clone());
        Box::pin(
            self.run(move |session| Box::pin(async move { inspect::break_hold(session, &key, id, &record).await })),
        )
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        let id = HoldId::of(&hold.claim.owner);
        Box::pin(self.run(move |session| Box::pin(async move { inspect::record_of(session, id).await })))
    }
}
