//! The contract's requests, each to the file that answers it.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Exchange, Health, Hold, Identity, Inspect, Keeps, LastSuccess,
    LockKey, LockState, Periods, Profile, Queue, Released, Reservation, Reserved, Result, RunEnd, Standing, Together,
    Tokens,
};
use futures::future::BoxFuture;

use crate::connections::check::check;
use crate::layout::name::in_redis;
use crate::lock::store::Redis;

impl Backend for Redis {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(format!("{:?}", self.connections.target))
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(key).named(in_redis(key)))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.guarded(claim, queue))
    }

    fn expects_others(&self, key: &LockKey) {
        self.contended.note(key, self.clock.now());
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.free(hold))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.places.dismiss(&claim.owner);
            self.give_up(claim).await
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(self.state(key))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            let mut health = check(&self.connections).await?;
            health.findings.extend(self.connections.note_form(self.connections.form()).await?);
            self.probe().await?;
            self.connections.admit_all().await?;
            Ok(health)
        })
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        // With `wait_replicas` each grant must wait for the replicas by itself.
        (self.connections.target.settings.wait_replicas == 0).then_some(self as &dyn Exchange)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        (self.connections.target.settings.wait_replicas == 0).then_some(self as &dyn Batch)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.pushes.stop();
        self.connections.close();
        Box::pin(async {})
    }
}

impl Keeps for Redis {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.finish(hold, Some(time), run))
    }
}

impl Periods for Redis {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.finish(hold, None, Some(run)))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(self.success(key))
    }
}

impl Tokens for Redis {
    fn reserve<'a>(&'a self, hold: &'a Hold, reservation: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(self.reserve_tokens(&hold.claim, reservation))
    }
}

impl Exchange for Redis {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        _until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(self.free_to(hold, next))
    }
}

impl Batch for Redis {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(self.attempt_all(claims))
    }

    fn takes_any_keys(&self) -> bool {
        self.connections.cluster().is_none()
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({:?})", self.connections.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_futures_of_an_uncontended_call_stay_small() {
        fn size<A, B, F>(_: fn(A, B) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        fn size_3<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        let ask = size_3::<&'static Redis, &'static Arc<Claim>, Queue, _>(Redis::guarded);
        let free = size::<&'static Redis, &'static Hold, _>(Redis::free);
        // Beyond 1 KiB glibc's allocator takes a lock that all threads share.
        assert!(ask <= 1024 && free <= 1024, "{ask} {free}");
    }
}
