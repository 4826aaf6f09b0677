//! The contract's requests.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Exchange, Health, Hold, Identity, Inspect, LockKey, LockState, Profile, Queue, Released,
    Result, Standing, Validity,
};
use futures::future::{BoxFuture, join_all};

use super::dialect::NamedDialect;
use super::held::Held;
use super::store::NamedLock;

impl<D: NamedDialect> Backend for NamedLock<D> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.shared.context.dialect.host())
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        let context = &self.shared.context;
        let id = context.lock_of(key)?.name.id;
        if !context.settings.is_literal {
            return Ok(Identity::of(key).named(id));
        }
        Ok(Identity::of(&key.literal()?).named(id))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.shared.bounded(self.shared.attempt(claim, queue)))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(join_all(holds.iter().map(|hold| async move {
            let Some(held) = hold.session::<Held<D>>() else { return Ok(Standing::Lost) };
            let renewed = |from| Standing::Renewed(Validity::new(from, hold.claim.ttl));
            Ok(self.shared.confirm(held).await?.map_or(Standing::Lost, renewed))
        })))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let Some(held) = hold.session::<Held<D>>() else { return Ok(Released::NotOwner) };
            Ok(if self.shared.free(held).await? { Released::Released } else { Released::NotOwner })
        })
    }

    /// Waits for the end of the attempt: if its caller is gone, it frees the lock that it wins.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let shared = &self.shared;
            let answered = shared.pending_attempts.end_in_time(&shared.context.clock, &claim.owner).await;
            if let Some(held) = self.shared.monitor.holds.held_by(&claim.owner) {
                self.shared.free(&held).await?;
            }
            answered?;
            // It must not be done after this.
            self.shared.monitor.end_left().await
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(self.shared.bounded(self.shared.holder(key)))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.shared.bounded(self.shared.health()))
    }

    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.shared.bounded(self.shared.admits(key)))
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.shared.sessions.close();
            self.shared.monitor.close().await;
        })
    }
}
