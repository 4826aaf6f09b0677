//! The end of a hold: the key first, then its session. Destroying the session first would start the lock-delay.

use std::sync::Arc;

use dlock_contract::{Claim, Error, Hold, Released, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::api::txn::{self, Op, Outcome};
use crate::api::{kv, session};
use crate::lock::locks::Locks;
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::place::{Lease, Place, Turn};
use crate::lock::renew::grant;
use crate::lock::value::LOCK;

/// Others may change the count of permits so many times between a read and the transaction.
const TRIES: u32 = 8;

impl Locks {
    /// Frees the lock. The session is destroyed after the answer, since nothing waits for that.
    pub(crate) fn release(self: &Arc<Self>, hold: &Hold) -> BoxFuture<'static, Result<Released>> {
        let grant = match grant(hold) {
            Ok(grant) => grant,
            Err(error) => return async { Err(error) }.boxed(),
        };
        let (locks, owner) = (self.clone(), hold.claim.owner);
        let (tell, told) = oneshot::channel();
        let work = async move {
            let freed = locks.free(&grant.name, &grant.session, grant.is_permit).await;
            let is_over = freed.is_ok();
            let _ = tell.send(freed);
            if is_over {
                locks.forget(owner);
                // A session without keys ends by itself.
                let _ = session::destroy(&locks.http, &grant.session).await;
            }
            Ok(())
        };
        let run = Self::detached(work);
        async move {
            let mut run = run;
            tokio::select! {
                biased;
                freed = told => freed.unwrap_or_else(|_| Err(Error::outage("dlock's own thread has ended"))),
                Err(error) = &mut run => Err(error),
            }
        }
        .boxed()
    }

    /// Ends a claim that may have something in the store, after the attempt that is still under way.
    pub(crate) async fn abandon(self: Arc<Self>, claim: Arc<Claim>, place: Arc<Place>, turn: Turn) -> Result<()> {
        let mut lease = turn.await;
        self.end(&place.name, &mut lease, claim.mode.is_shared()).await?;
        self.forget_empty(claim.owner, &place);
        Ok(())
    }

    /// A refused attempt leaves nothing.
    pub(crate) async fn leave(&self, claim: &Claim, place: &Arc<Place>, lease: &mut Option<Lease>) -> Result<()> {
        if let Some(present) = lease {
            session::destroy(&self.http, &present.session).await?;
        }
        *lease = None;
        self.forget_empty(claim.owner, place);
        Ok(())
    }

    /// Ends everything at the end of the store.
    pub(crate) async fn end_all(&self) {
        for place in self.drain() {
            let mut lease = place.lease.lock().await;
            if let Some(present) = lease.take() {
                let _ = session::destroy(&self.http, &present.session).await;
            }
        }
        self.http.close().await;
    }

    async fn end(&self, name: &Name, lease: &mut Option<Lease>, is_permit: bool) -> Result<()> {
        if let Some(present) = lease {
            self.free(name, &present.session, is_permit).await?;
            session::destroy(&self.http, &present.session).await?;
        }
        *lease = None;
        Ok(())
    }

    async fn free(&self, name: &Name, session: &str, is_permit: bool) -> Result<Released> {
        if is_permit { self.free_permit(name, session).await } else { self.free_lock(name, session).await }
    }

    async fn free_lock(&self, name: &Name, session: &str) -> Result<Released> {
        let held = Op::held(&name.lock, session);
        // Other tools leave the key, and may count its acquisitions.
        let end =
            if self.http.settings().literal { Op::unlock(&name.lock, session, LOCK) } else { Op::delete(&name.lock) };
        Ok(released(&txn::run(&self.http, &[held, end]).await?))
    }

    async fn free_permit(&self, name: &Name, session: &str) -> Result<Released> {
        let key = name.permit(session);
        for _ in 0..TRIES {
            let permits = Permits::of(name, &kv::read_all(&self.http, &name.below, None).await?.found);
            let mut ops = vec![Op::held(&key, session), Op::delete(&key)];
            ops.extend(permits.without(name, session, self.http.settings().literal));
            match txn::run(&self.http, &ops).await? {
                // The count has changed.
                Outcome::Refused(failures) if failures.iter().all(|failure| failure.op_index == 2) => {}
                outcome => return Ok(released(&outcome)),
            }
        }
        // A session without a key has no permit: the next claim takes it out of the count.
        Ok(released(&txn::run(&self.http, &[Op::held(&key, session), Op::delete(&key)]).await?))
    }
}

fn released(outcome: &Outcome) -> Released {
    match outcome {
        Outcome::Done(_) => Released::Released,
        Outcome::Refused(_) => Released::NotOwner,
    }
}
