//! The contract's requests, each with the session that holds the lock.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Holder, Identity, Inspect, LockKey, LockState, Note, Profile, Queue,
    Released, Result, Standing, Validity,
};
use futures::future::{BoxFuture, join_all};

use super::name::name_of;
use super::session::Session;
use super::store::GetLock;

impl Backend for GetLock {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(key).named(name_of(key.as_str())))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.shared.bounded(self.shared.attempt(claim, queue)))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(join_all(holds.iter().map(|hold| async move {
            match hold.session::<Session>() {
                Some(session) => {
                    let from = session.confirm(&self.shared.clock).await?;
                    let renewed = |from| Standing::Renewed(Validity::new(from, hold.claim.ttl));
                    Ok(from.map_or(Standing::Lost, renewed))
                }
                None => Ok(Standing::Lost),
            }
        })))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let Some(session) = hold.session::<Session>() else { return Ok(Released::NotOwner) };
            let freed = self.shared.free(&hold.claim.owner, session).await?;
            Ok(if freed { Released::Released } else { Released::NotOwner })
        })
    }

    /// A wait or an attempt that was dropped has closed its socket by that; what is left is a lock that was granted.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(session) = self.shared.monitor.session_of(&claim.owner) else { return Ok(()) };
            self.shared.free(&claim.owner, &session).await.map(drop)
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(self.shared.bounded(async move {
            let (link, row) = self.shared.link().await?.holder(&name_of(key.as_str())).await?;
            self.shared.park(link).await;
            let holder = row.map(|row| {
                Holder::new(Note::from_stored(&row.note)).with(|holder| {
                    holder.id = row.hold;
                    holder.token = Some(row.token);
                })
            });
            // Waiters stand in the server, which does not count them.
            Ok(LockState::new(holder.into_iter().collect(), None))
        }))
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        let shared = &self.shared;
        Box::pin(shared.bounded(async move {
            let (link, version) = shared.link().await?.version().await?;
            shared.park(link).await;
            let product = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
            Ok(Health::new().version(format!("{product} {version}")).role("primary"))
        }))
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while let Ok(Some(link)) = self.shared.unpark().await {
                link.close(&self.shared.clock).await;
            }
            self.shared.parked.clear();
            self.shared.monitor.close().await;
        })
    }
}
