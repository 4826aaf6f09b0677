//! The end of a hold: first frees the key, then destroys the session. The other order would start Consul's lock-delay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{Claim, Error, Hold, Released, Result};
use dlock_store::detached;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::oneshot;

use crate::api::txn::{self, Op, TxnOutcome};
use crate::api::{kv, session};
use crate::lock::claim_state::{ClaimSession, ClaimState, StateAccess};
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::renew::session_of;
use crate::lock::shared::Shared;
use crate::lock::value::LOCK;

/// How often a release begins again because another claim changed the count of permits.
const MAX_TRIES: u32 = 8;

impl Shared {
    /// Frees the lock. The session is destroyed after the answer to the caller, because nobody needs to wait for that.
    pub(crate) fn release(self: &Arc<Self>, hold: &Hold) -> BoxFuture<'static, Result<Released>> {
        let held = match session_of(hold) {
            Ok(held) => held,
            Err(error) => return async { Err(error) }.boxed(),
        };
        let (shared, owner) = (self.clone(), hold.claim.owner);
        let state = shared.states.get(owner);
        let (sender, answer) = oneshot::channel();
        let work = async move {
            let freed = shared.free(&held.name, &held.session_id, held.is_permit).await;
            let is_confirmed = freed.is_ok();
            if is_confirmed && let Some(state) = state {
                // Before the answer. Another attempt of the claim would use this state and the session that ends below, and an
                // abandon would not find them.
                shared.states.forget(owner, &state);
            }
            let _ = sender.send(freed);
            if is_confirmed {
                // If this fails, the session ends by itself.
                let _ = session::destroy(&shared.http, &held.session_id).await;
            }
            Ok(())
        };
        let running = detached(work);
        async move {
            let mut running = running;
            tokio::select! {
                biased;
                freed = answer => freed.unwrap_or_else(|_| Err(Error::outage("dlock's own thread has ended"))),
                Err(error) = &mut running => Err(error),
            }
        }
        .boxed()
    }

    /// Ends a claim that may have something in the store. Runs after the claim's attempt, if one is under way.
    pub(crate) async fn abandon(
        self: Arc<Self>,
        claim: Arc<Claim>,
        state: Arc<ClaimState>,
        access: StateAccess,
    ) -> Result<()> {
        let mut session = access.await;
        self.end(&state, &mut session).await?;
        self.states.forget_empty(claim.owner, &state);
        Ok(())
    }

    /// Destroys the session of a refused attempt.
    pub(crate) async fn leave(
        &self,
        claim: &Claim,
        state: &Arc<ClaimState>,
        session: &mut Option<ClaimSession>,
    ) -> Result<()> {
        if let Some(present) = session {
            session::destroy(&self.http, &present.id).await?;
        }
        *session = None;
        self.states.forget_empty(claim.owner, state);
        Ok(())
    }

    /// Ends all claims, when the store is closed.
    pub(crate) async fn end_all(&self) {
        let states = self.states.drain().into_iter().map(async |(_, state)| {
            let mut session = state.session.lock().await;
            // If this fails, the session ends by itself.
            let _ = self.end(&state, &mut session).await;
        });
        join_all(states).await;
        self.http.close().await;
    }

    async fn end(&self, state: &ClaimState, session: &mut Option<ClaimSession>) -> Result<()> {
        if let Some(present) = session {
            self.free(&state.name, &present.id, state.is_permit).await?;
            if state.is_marked.load(Ordering::Relaxed) {
                // The end of the session would start Consul's lock-delay for it.
                let wanted = &state.name.wanted;
                txn::run(&self.http, &[Op::held(wanted, &present.id), Op::delete(wanted)]).await?;
            }
            session::destroy(&self.http, &present.id).await?;
        }
        *session = None;
        Ok(())
    }

    async fn free(&self, name: &Name, session_id: &str, is_permit: bool) -> Result<Released> {
        if is_permit { self.free_permit(name, session_id).await } else { self.free_lock(name, session_id).await }
    }

    async fn free_lock(&self, name: &Name, session_id: &str) -> Result<Released> {
        let is_held = Op::held(&name.lock, session_id);
        // Foreign clients keep the key of a free lock, and may count its acquisitions.
        let end = if self.http.settings().literal {
            Op::unlock(&name.lock, session_id, LOCK)
        } else {
            Op::delete(&name.lock)
        };
        Ok(released(&txn::run(&self.http, &[is_held, end]).await?))
    }

    async fn free_permit(&self, name: &Name, session_id: &str) -> Result<Released> {
        let key = name.permit(session_id);
        for _ in 0..MAX_TRIES {
            let permits = Permits::of(name, &kv::read_all(&self.http, &name.below, None).await?.found);
            let mut ops = vec![Op::held(&key, session_id), Op::delete(&key)];
            ops.extend(permits.without(name, session_id));
            match txn::run(&self.http, &ops).await? {
                // Only the count has changed: read it again.
                TxnOutcome::Refused(failures) if failures.iter().all(|failure| failure.op_index == 2) => {}
                outcome => return Ok(released(&outcome)),
            }
        }
        // Delete only the key. A session without a key holds no permit, and the next claim removes it from the count.
        Ok(released(&txn::run(&self.http, &[Op::held(&key, session_id), Op::delete(&key)]).await?))
    }
}

fn released(outcome: &TxnOutcome) -> Released {
    match outcome {
        TxnOutcome::Done(_) => Released::Released,
        TxnOutcome::Refused(_) => Released::NotOwner,
    }
}
