//! The contract's requests, on top of all files. Each runs on our thread, to its end.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, BootInstant, Claim, Exchange, Health, Hold, Identity, Inspect, LockKey, LockState, Profile,
    Queue, Released, Result, Standing,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use zookeeper_client::{Error as ClientError, MultiWriteError};

use crate::inspect;
use crate::place::Held;
use crate::renewal::{foreign, renew};
use crate::store::ZooKeeper;
use crate::task::to_its_end;
use crate::wire::fault::fault;

impl Backend for ZooKeeper {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        self.core.paths.identify(key)
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        let (core, claim) = (self.core.clone(), claim.clone());
        async move {
            let place = core.place(&claim)?;
            let turn = place.turn().await;
            to_its_end(async move { place.attempt(&core, &claim, queue, turn).await }).await
        }
        .boxed()
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        renew(holds).boxed()
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        let core = self.core.clone();
        async move {
            let held = hold.shared_session::<Held>().ok_or_else(foreign)?;
            let (place, owner) = (held.place.clone(), hold.claim.owner);
            let turn = place.turn().await;
            to_its_end(async move {
                let released = held.release(turn).await?;
                core.forget(owner, &place);
                Ok(released)
            })
            .await
        }
        .boxed()
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        let (core, owner, ttl) = (self.core.clone(), claim.owner, claim.ttl);
        async move {
            let Some(place) = core.standing(owner) else { return Ok(()) };
            let turn = place.turn().await;
            to_its_end(async move {
                place.abandon(&core, ttl, turn).await?;
                core.forget_empty(owner, &place);
                Ok(())
            })
            .await
        }
        .boxed()
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        let core = self.core.clone();
        async move {
            let path = core.paths.lock(key)?;
            to_its_end(async move { inspect::look(&core.leases.any().await?.client().await?, &path).await }).await
        }
        .boxed()
    }

    /// A request that a majority has to agree on, and that changes nothing. Then a server is asked what it is.
    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let core = self.core.clone();
        to_its_end(async move {
            let client = core.leases.any().await?.client().await?;
            let root = if core.paths.root().is_empty() { "/" } else { core.paths.root() };
            let mut writer = client.new_multi_writer();
            writer.add_check_version(root, -1).map_err(|error| fault(&error))?;
            match writer.commit().await {
                // Who may not read this node may still have locks.
                Ok(_)
                | Err(MultiWriteError::OperationFailed { source: ClientError::NoAuth | ClientError::NoNode, .. }) => {
                    Ok(core.leases.health().await)
                }
                Err(error) => Err(fault(&error.into())),
            }
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
        self.core.leases.close().boxed()
    }
}

impl Exchange for ZooKeeper {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        _until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        let (core, next) = (self.core.clone(), next.clone());
        async move {
            let held = hold.shared_session::<Held>().ok_or_else(foreign)?;
            let (freed, place, owner) = (held.place.clone(), core.place(&next)?, hold.claim.owner);
            let turn = place.turn().await;
            to_its_end(async move {
                let answer = held.release_to(core.clone(), place, next, turn).await?;
                core.forget(owner, &freed);
                Ok(answer)
            })
            .await
        }
        .boxed()
    }
}
