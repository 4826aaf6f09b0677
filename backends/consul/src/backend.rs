//! The requests of the contract. All of them run on dlock's own thread.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, BreakRecord, Claim, Health, Hold, HoldId, Identity, Inspect, Listing, LockKey, LockState, Page,
    Profile, Queue, Released, Result, Standing,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::lock::locks::Locks;
use crate::lock::renew::Renewal;
use crate::probe;
use crate::store::Consul;

impl Backend for Consul {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        let name = self.locks.name(key)?.lock;
        let lock = if self.locks.http.settings().literal { key.literal()? } else { key.clone() };
        Ok(Identity::of(&lock).named(name))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        let (locks, claim) = (self.locks.clone(), claim.clone());
        async move {
            let place = locks.place(&claim)?;
            let turn = place.turn().await;
            Locks::detached(locks.attempt(claim, queue, place, turn)).await
        }
        .boxed()
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        let renewals = holds.iter().map(|hold| Renewal::of(hold)).collect::<Result<Vec<_>>>();
        let locks = self.locks.clone();
        async move {
            let answers = match renewals {
                Ok(renewals) => Locks::detached(async move { Ok(locks.renew(renewals).await) }).await,
                Err(error) => Err(error),
            };
            answers.unwrap_or_else(|error| holds.iter().map(|_| Err(error.again())).collect())
        }
        .boxed()
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        self.locks.release(hold)
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        let (locks, claim) = (self.locks.clone(), claim.clone());
        async move {
            let Some(place) = locks.standing(claim.owner) else { return Ok(()) };
            let turn = place.turn().await;
            Locks::detached(locks.abandon(claim, place, turn)).await
        }
        .boxed()
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Locks::detached(self.locks.clone().look(key.clone()))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let http = self.locks.http.clone();
        Locks::detached(async move { probe::ready(&http).await })
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let locks = self.locks.clone();
        let closed = Locks::detached(async move {
            locks.end_all().await;
            Ok(())
        });
        closed.map(drop).boxed()
    }
}

impl Inspect for Consul {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Locks::detached(self.locks.clone().list(listing.clone()))
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Locks::detached(self.locks.clone().break_hold(key.clone(), id, record.clone()))
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Locks::detached(self.locks.clone().record_of(HoldId::of(&hold.claim.owner)))
    }
}
