//! The contract's requests.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Identity, Inspect, LockKey, LockState, Profile, Queue, Released, Result,
    Settle, Standing, Validity,
};
use futures::future::{BoxFuture, join, join_all};

use super::aside::{ask_aside, failed};
use super::dialect::RowDialect;
use super::held::HeldRow;
use super::store::RowLock;

impl<D: RowDialect> Backend for RowLock<D> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        Some(self.shared.context.dialect.host())
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        let shared = &self.shared;
        let row = shared.table.key_of(shared.kind, key)?;
        let lock = if shared.table.is_own { key.literal()? } else { key.clone() };
        Ok(Identity::of(&lock).named(shared.table.record_of(key, &row)))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.shared.bounded(self.shared.attempt(claim, queue)))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(join_all(holds.iter().map(|hold| async move {
            let Some(held) = hold.shared_session::<HeldRow<D>>() else { return Ok(Standing::Lost) };
            let shared = self.shared.clone();
            let confirming = ask_aside(async move { shared.confirm(&held).await })?;
            let confirmed = confirming.await.unwrap_or_else(|_| Err(failed()))?;
            let renewed = |from| Standing::Renewed(Validity::new(from, hold.claim.ttl));
            Ok(confirmed.map_or(Standing::Lost, renewed))
        })))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let Some(held) = hold.shared_session::<HeldRow<D>>() else { return Ok(Released::NotOwner) };
            self.shared.free(held).await
        })
    }

    /// An attempt whose caller has gone rolls back by itself what it wins, and a wait ends; this waits for that.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let shared = &self.shared;
            let answered = shared.pending_attempts.end_in_time(&shared.context.clock, &claim.owner).await;
            if let Some(held) = self.shared.monitor.holds.held_by(&claim.owner) {
                self.shared.free(held).await?;
            }
            answered
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(self.shared.bounded(self.shared.holders(key)))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.shared.bounded(self.shared.health()))
    }

    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        let (ways, key) = (self.shared.ways.clone(), key.clone());
        let pool = &self.shared.pool;
        Box::pin(pool.run(move |session| Box::pin(async move { session.has_way(&ways, &key).await.map(drop) })))
    }

    fn settle(&self) -> Option<&dyn Settle> {
        Some(self)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Both futures refuse new requests at their first poll.
            self.shared.pool.close();
            join(self.shared.sessions.end_all(), self.shared.monitor.connection.close()).await;
        })
    }
}
