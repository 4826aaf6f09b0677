//! The requests of the contract. All of them run on dlock's own thread.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, BreakRecord, Claim, Health, Hold, HoldId, Identity, Inspect, Listing, LockKey, LockState, Page,
    Profile, Queue, Released, Result, Standing,
};
use dlock_store::detached;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::lock::renew::Renewal;
use crate::probe;
use crate::store::Consul;

impl Backend for Consul {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        let settings = self.shared.http.settings();
        Some(format!("{}:{}", settings.host, settings.port))
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        let name = self.shared.name(key)?.lock;
        let lock = if self.shared.http.settings().literal { key.literal()? } else { key.clone() };
        Ok(Identity::of(&lock).named(name))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        let (shared, claim) = (self.shared.clone(), claim.clone());
        async move {
            let state = shared.state(&claim)?;
            let access = state.next_access().await;
            detached(shared.attempt(claim, queue, state, access)).await
        }
        .boxed()
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        let renewals = holds.iter().map(|hold| Renewal::of(hold)).collect::<Result<Vec<_>>>();
        let shared = self.shared.clone();
        async move {
            let answers = match renewals {
                Ok(renewals) => detached(async move { Ok(shared.renew(renewals).await) }).await,
                Err(error) => Err(error),
            };
            answers.unwrap_or_else(|error| holds.iter().map(|_| Err(error.again())).collect())
        }
        .boxed()
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        self.shared.release(hold)
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        let (shared, claim) = (self.shared.clone(), claim.clone());
        async move {
            let Some(state) = shared.states.get(claim.owner) else { return Ok(()) };
            let access = state.next_access().await;
            detached(shared.abandon(claim, state, access)).await
        }
        .boxed()
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        detached(self.shared.clone().look(key.clone()))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let (http, shortest) = (self.shared.http.clone(), self.profile.ttl.min);
        detached(async move { probe::ready(&http, shortest).await })
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let shared = self.shared.clone();
        let closed = detached(async move {
            shared.end_all().await;
            Ok(())
        });
        closed.map(drop).boxed()
    }
}

impl Inspect for Consul {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        detached(self.shared.clone().list(listing.clone()))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        detached(self.shared.clone().break_hold(key.clone(), id, record.clone()))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        detached(self.shared.clone().record_of(HoldId::of(&hold.claim.owner)))
    }
}
