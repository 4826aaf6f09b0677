//! `keys=literal`: locks under the names that other tools write, of which each keeps the other out.
//!
//! redis-py, redsync, node-redlock, rslock and many more keep a lock as one string with a lease, under a name that their
//! user has chosen. So do we; what differs is the name. Their values are contention: never changed, waited for by asking
//! again, since nobody tells of their release. All else under the name is a conflict.
//!
//! This is the plain backend under other names, and all that belongs to a lock beside its value has names of ours.

mod backend;

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Capabilities, Claim, Clock, Hold, Result, Signal, Stand, Standing, Together, Wake,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::settings::Layout;
use super::store::Redis;
use super::target::Target;

/// Locks in Redis under [literal](LockKey::literal) names, shared with tools that keep a lock as a string with a lease.
///
/// Exclusive locks only: the other tools know no readers and no permits.
pub struct Literal {
    pub(super) redis: Redis,
    capabilities: Capabilities,
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

    pub(super) async fn open(target: Target, clock: &Clock) -> Result<Self> {
        let redis = Redis::open(target, clock).await?;
        let capabilities =
            Capabilities { read_write: false, permits: false, any_key: false, ..redis.capabilities().clone() };
        Ok(Self { redis, capabilities })
    }

    async fn attempt(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        self.redis.try_acquire(&under_its_name(claim)?, stand).await.map(|attempt| for_claim(attempt, claim))
    }

    async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        let named = claims.iter().map(|claim| under_its_name(claim)).collect::<Result<Vec<_>>>()?;
        Ok(match self.redis.try_acquire_all(&named).await? {
            Together::Acquired(holds) => {
                let granted = |(hold, claim): (Hold, &Arc<Claim>)| Hold { claim: claim.clone(), ..hold };
                Together::Acquired(holds.into_iter().zip(claims).map(granted).collect())
            }
            other => other,
        })
    }

    async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        match all_inside(holds) {
            Ok(named) => self.redis.renew(&named.iter().collect::<Vec<_>>()).await,
            Err(none) => none,
        }
    }
}

/// The claim with the name under which its lock stands.
pub fn under_its_name(claim: &Claim) -> Result<Arc<Claim>> {
    let key = claim.key.literal()?;
    Ok(Arc::new(Claim::clone(claim).with(|claim| claim.key = key)))
}

/// The hold as the plain backend knows it.
pub fn inside(hold: &Hold) -> Result<Hold> {
    let Hold { claim, token, validity, slot, group, session, session_end } = hold;
    let (session, session_end) = (session.clone(), session_end.clone());
    let (token, validity, slot, group) = (*token, *validity, *slot, *group);
    Ok(Hold { claim: under_its_name(claim)?, token, validity, slot, group, session, session_end })
}

/// The same of several, or what is answered where that cannot be: such a hold was never granted.
pub fn all_inside(holds: &[&Hold]) -> std::result::Result<Vec<Hold>, Vec<Result<Standing>>> {
    let named = holds.iter().map(|hold| inside(hold)).collect::<Result<Vec<_>>>();
    named.map_err(|error| holds.iter().map(|_| Err(error.again())).collect())
}

/// What is granted, now or by its wake, is granted to the claim as it was asked.
pub fn for_claim(attempt: Attempt, claim: &Arc<Claim>) -> Attempt {
    let claim = claim.clone();
    let granted = |hold| Hold { claim, ..hold };
    match attempt {
        Attempt::Acquired(hold) => Attempt::Acquired(granted(hold)),
        Attempt::Contended(wake) => {
            let told = move |signal| match signal {
                Signal::Granted(hold) => Signal::Granted(granted(hold)),
                Signal::Ask => Signal::Ask,
            };
            let signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
                Box::pin(signal.map(move |news| news.map(told)))
            });
            Attempt::Contended(Wake { signal, ..wake })
        }
        Attempt::AlreadyRun => Attempt::AlreadyRun,
    }
}
