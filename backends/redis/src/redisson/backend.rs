//! The contract's requests to locks in Redisson's layout.

use std::fmt;
use std::sync::{Arc, PoisonError};

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Identity, LockKey, LockState, Profile, Queue, Released, Result, Standing,
};
use futures::future::BoxFuture;

use crate::connections::check::check;
use crate::lock::renew::in_batches;
use crate::lock::store::{PROBE_TTL, probe_claim};
use crate::redisson::store::{Redisson, channel};

impl Backend for Redisson {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(format!("{:?}", self.connections.target))
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(&key.literal()?))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim, queue))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(in_batches(holds, |batch| self.renew_batch(batch)))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let name = hold.claim.key.literal()?;
            self.free(&self.connections.here().await?, &hold.claim, &name).await
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // Without a literal name the claim was refused, so nothing of it is in the server.
            let Ok(name) = claim.key.literal() else { return Ok(()) };
            self.channels.dismiss(&channel(&name), &claim.owner);
            self.give_up(claim, &name).await
        })
    }

    /// Redisson counts no waiters, and a hold is ended by its own tools (`forceUnlock`).
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let holder = self.holder(&key.literal()?).await?;
            Ok(LockState::new(holder.into_iter().collect(), None))
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            let mut health = check(&self.connections).await?;
            health.findings.extend(self.connections.note_form(self.connections.form()).await?);
            // Its names are those of foreign clients, so it takes no lock.
            self.connections.admit(&probe_claim(PROBE_TTL)?.key).await?;
            Ok(health)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.channels.stop();
        self.connections.close();
        Box::pin(async {})
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redisson({:?})", self.connections.target)
    }
}
