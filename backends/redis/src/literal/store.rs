//! `keys=literal`: locks under the names that foreign clients write, of which each keeps the other out.
//!
//! redis-py, redsync, node-redlock, rslock and many more keep a lock as one string with a lease, under a name that
//! their user has chosen. dlock writes the same form here; only the name differs from its own layout. A foreign value
//! is contention. It is never changed, and a waiter asks again, since no foreign client reports its release. Anything
//! else under the name is a conflict.
//!
//! This is the plain backend under other names, and all that belongs to a lock beside its value has names of ours.

use std::sync::Arc;

use dlock_contract::{Attempt, Backend, Batch, Claim, Hold, Profile, Queue, Result, Standing, Together};
use dlock_store::Clock;

use crate::literal::translate::{all_inside, for_claim, under_its_name};
use crate::lock::store::Redis;
use crate::topology::target::Target;
use crate::url::settings::Layout;

/// Locks in Redis under [literal](dlock_contract::LockKey::literal) names, shared with tools that keep a lock as a string with a lease.
///
/// Exclusive locks only: foreign clients know no readers and no permits.
pub struct Literal {
    pub(crate) redis: Redis,
    pub(crate) profile: Profile,
}

impl Literal {
    /// Connects as [`Redis::connect`] does; the URL says `keys=literal`.
    ///
    /// # Errors
    /// As [`Redis::connect`].
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        target.settings.check_layout(Layout::Literal)?;
        Self::open(target, clock).await
    }

    pub(crate) async fn open(target: Target, clock: &Clock) -> Result<Self> {
        let redis = Redis::open(target, clock).await?;
        let profile = redis
            .profile()
            .clone()
            .with(|plain| (plain.read_write, plain.permits, plain.any_key) = (false, false, false));
        Ok(Self { redis, profile })
    }

    pub(crate) async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        self.redis.try_acquire(&under_its_name(claim)?, queue).await.map(|attempt| for_claim(attempt, claim))
    }

    pub(crate) async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        let named = claims.iter().map(|claim| under_its_name(claim)).collect::<Result<Vec<_>>>()?;
        Ok(match self.redis.try_acquire_all(&named).await? {
            Together::Acquired(holds) => {
                let granted = |(hold, claim): (Hold, &Arc<Claim>)| hold.for_claim(claim.clone());
                Together::Acquired(holds.into_iter().zip(claims).map(granted).collect())
            }
            other => other,
        })
    }

    pub(crate) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        match all_inside(holds) {
            Ok(named) => self.redis.renew(&named.iter().collect::<Vec<_>>()).await,
            Err(errors) => errors,
        }
    }
}
