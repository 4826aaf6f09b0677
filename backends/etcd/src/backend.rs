//! The requests of the contract.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, Claim, Error, Exchange, Health, Hold, Identity, Inspect, Keeps, LockKey, LockState,
    Profile, Queue, Released, Result, RunEnd, Standing, Together,
};
use futures::future::{BoxFuture, join_all};

use super::connection::Connections;
use super::fault::Fault;
use super::store::{Etcd, held};
use super::{forms, inspect, rights};

impl Backend for Etcd {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.connections.hosts().join(", "))
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(&self.layout.lock(key)?).named(self.layout.prefix(key)?))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim, queue))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.release_hold(hold))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.abandon_claim(claim.owner))
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move { Ok(inspect::look(&self.connections.get().await?, &self.layout.range(key)?).await?) })
    }

    /// Repeats the test of the opening, with the requests of an acquisition.
    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            let connection = self.connections.get().await?;
            rights::probe(&connection, self.layout).await?;
            self.connections.check_clusters().await?;
            let mut health = connection.health().await?;
            health.findings = forms::note(&connection, self.layout).await?;
            Ok(health)
        })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        Some(self)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let places = std::mem::take(&mut *self.places());
            let own = places.into_values().map(|place| place.lease.clone()).filter(|lease| !lease.shared);
            let leases: Vec<_> = own.chain(self.leases.drain()).collect();
            // Also if the engine gives this up, because the servers are silent.
            let _closes = Closes(&self.connections);
            if leases.is_empty() {
                return;
            }
            let Ok(connection) = self.connections.get().await else { return };
            let revoked = leases.iter().map(|lease| {
                self.leases.mark_ended(lease);
                connection.revoke(lease.id)
            });
            join_all(revoked).await;
        })
    }
}

impl Keeps for Etcd {
    /// Moves the key to a lease of its own. Its ttl is in whole seconds, and the server raises one that is too short.
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, _run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let (place, revision) = held(hold)?;
            // Also if the request never leaves, or its answer is lost.
            place.state().kept_until = Some(self.connections.clock.now().after(time));
            // As in a release: from here on only the hold has the place.
            self.forget(place, hold.claim.owner);
            let connection = self.connections.get().await?;
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX).max(1);
            let granted = connection.grant(seconds).await.map_err(Error::from)?;
            let (lease, ttl) = (granted.id(), u64::try_from(granted.ttl()).unwrap_or_default());
            let now = self.connections.clock.now();
            // Before the request leaves: if its answer is lost, the key may be kept already.
            place.number.keep_until(now.after(Duration::from_secs(ttl)).after(self.profile.takeover_delay));
            let kept = match place.keep(&connection, revision, lease).await {
                // If the lease of the kept key has ended, so has its time. On our own lease the key would stay for ever.
                Err(Fault::LeaseGone) => place.release(&connection, revision).await?,
                kept => kept?,
            };
            if kept == Released::NotOwner {
                // No key is on this lease. If this request fails, the lease ends by itself.
                let _ = connection.revoke(lease).await;
            }
            self.revoke_own_lease(&connection, place).await;
            Ok(kept)
        })
    }
}

impl Batch for Etcd {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(self.attempt_all(claims))
    }
}

/// Closes the connections when it is dropped.
struct Closes<'a>(&'a Connections);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
