//! The requests of the contract. The authority's answer is the answer; the gate follows it.

use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Identity, Inspect, Keeps, LockKey, LockState, Periods, Profile, Queue,
    Released, Result, Standing,
};
use futures::future::BoxFuture;

use crate::paired::Paired;

impl Backend for Paired {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        self.stores.identify(key)
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.stores.attempt(claim, queue))
    }

    fn expects_others(&self, key: &LockKey) {
        self.stores.first.expects_others(key);
        self.stores.second.expects_others(key);
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            let parts: Result<Vec<_>> = holds.iter().map(|hold| self.stores.parts(hold)).collect();
            let parts = match parts {
                Ok(parts) => parts,
                Err(error) => return holds.iter().map(|_| Err(error.again())).collect(),
            };
            self.stores.renew_gate(parts.iter().map(|(both, _)| both.clone()));
            let in_authority: Vec<_> = parts.iter().map(|(_, hold)| hold).collect();
            let answers = self.stores.second.renew(&in_authority).await;
            for ((both, hold), answer) in parts.iter().zip(&answers) {
                if matches!(answer, Ok(Standing::Lost)) {
                    // Nobody releases a lost hold.
                    self.stores.leave_gate_later(both, &hold.claim);
                }
            }
            answers.into_iter().map(|answer| answer.map_err(|error| self.stores.by_second(error))).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, |authority, hold| authority.release(hold)))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.stores.abandon(claim))
    }

    /// The holders are the authority's. Those who wait do so at both stores.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let (at_gate, state) = futures::join!(self.stores.first.look(key), self.stores.second.look(key));
            let mut state = state.map_err(|error| self.stores.by_second(error))?;
            let at_gate = at_gate.ok().and_then(|state| state.waiters);
            state.waiters = at_gate.zip(state.waiters).map(|(at_gate, behind)| at_gate + behind);
            Ok(state)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.stores.ready())
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        self.stores.second.keeps().map(|_| self as &dyn Keeps)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        self.stores.second.periods().map(|_| self as &dyn Periods)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.stores.second.inspect().map(|_| self as &dyn Inspect)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stores.close())
    }
}

impl Paired {
    /// Ends a hold in the authority, and then in the gate: so nobody passes the gate and finds the lock still taken. If the
    /// authority does not answer, the gate stays taken too, until the release is tried again or the ttl ends both.
    pub(super) async fn end(
        &self,
        hold: &Hold,
        ending: impl for<'a> FnOnce(&'a dyn Backend, &'a Hold) -> BoxFuture<'a, Result<Released>> + Send,
    ) -> Result<Released> {
        let (both, in_authority) = self.stores.parts(hold)?;
        let released = ending(&*self.stores.second, &in_authority).await;
        let released = released.map_err(|error| self.stores.by_second(error))?;
        self.stores.leave_gate(&both, &hold.claim).await;
        Ok(released)
    }
}
