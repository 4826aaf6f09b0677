//! The requests of the contract. Each runs on our thread, to its end.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, BootInstant, Claim, Exchange, Health, Hold, Identity, Inspect, LockKey, LockState, Profile,
    Queue, Released, Result, Standing,
};
use dlock_store::detached;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::place::HoldSession;
use crate::renewal::{foreign, renew};
use crate::store::{ZooKeeper, probe};
use crate::{forms, inspect};

impl Backend for ZooKeeper {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.hosts.clone())
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        self.shared.paths.identify(key)
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        let (shared, claim) = (self.shared.clone(), claim.clone());
        async move {
            let place = shared.place(&claim)?;
            let access = place.next_access().await;
            detached(async move { place.attempt(&shared, &claim, queue, access).await }).await
        }
        .boxed()
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        renew(holds).boxed()
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        let shared = self.shared.clone();
        async move {
            let held = hold.shared_session::<HoldSession>().ok_or_else(foreign)?;
            let (place, owner) = (held.place.clone(), hold.claim.owner);
            let access = place.next_access().await;
            detached(async move {
                let released = held.release(access).await?;
                shared.places.forget(owner, &place);
                Ok(released)
            })
            .await
        }
        .boxed()
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        let (shared, owner, ttl) = (self.shared.clone(), claim.owner, claim.ttl);
        async move {
            let Some(place) = shared.places.get(owner) else { return Ok(()) };
            let access = place.next_access().await;
            detached(async move {
                place.abandon(&shared, ttl, access).await?;
                shared.places.forget_empty(owner, &place);
                Ok(())
            })
            .await
        }
        .boxed()
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let shared = self.shared.clone();
        async move {
            let path = shared.paths.lock(key)?;
            detached(async move { inspect::look(&shared.leases.any().await?.client().await?, &path).await }).await
        }
        .boxed()
    }

    /// Repeats the test of the opening. Then asks a server for its version and role.
    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let shared = self.shared.clone();
        detached(async move {
            let client = shared.leases.any().await?.client().await?;
            probe(&client, &shared).await?;
            let mut health = shared.leases.health().await?;
            health.findings.extend(forms::note(&client, &shared).await?);
            // An operator may have deleted the node, and the note has made it anew.
            shared.leases.remember_ensemble(&client).await?;
            Ok(health)
        })
        .boxed()
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.leases.close().boxed()
    }
}

impl Exchange for ZooKeeper {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        _until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        let (shared, next) = (self.shared.clone(), next.clone());
        async move {
            let held = hold.shared_session::<HoldSession>().ok_or_else(foreign)?;
            let (freed, place, owner) = (held.place.clone(), shared.place(&next)?, hold.claim.owner);
            let access = place.next_access().await;
            detached(async move {
                let answer = held.release_to(shared.clone(), place, next, access).await?;
                shared.places.forget(owner, &freed);
                Ok(answer)
            })
            .await
        }
        .boxed()
    }
}
