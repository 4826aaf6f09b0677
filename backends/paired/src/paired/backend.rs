//! The requests of the contract. The authority's answer counts, and the gate follows it.

use std::sync::Arc;
use std::time::Duration;

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

    fn host(&self) -> Option<String> {
        self.stores.host()
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
            self.stores.renew_gate(parts.iter().map(|(session, _)| session.clone()));
            let in_authority: Vec<_> = parts.iter().map(|(_, hold)| hold).collect();
            let answers = self.stores.second.renew(&in_authority).await;
            for ((session, hold), answer) in parts.iter().zip(&answers) {
                if matches!(answer, Ok(Standing::Lost)) {
                    // Nobody releases a lost hold.
                    self.stores.leave_gate_later(session, &hold.claim);
                }
            }
            answers.into_iter().map(|answer| answer.map_err(|error| self.stores.error_of_second(error))).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, |authority, hold| authority.release(hold)))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.stores.abandon(claim))
    }

    /// The authority's holders. Waiters wait in both stores, so their number is unknown if the gate is silent.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move {
            let by = self.stores.clock.now().after(Duration::from_secs(1));
            let at_gate = self.stores.clock.timeout_at(by, self.stores.first.look(key));
            let (at_gate, state) = futures::join!(at_gate, self.stores.second.look(key));
            let mut state = state.map_err(|error| self.stores.error_of_second(error))?;
            let at_gate = at_gate.and_then(Result::ok).and_then(|state| state.waiters);
            state.waiters = at_gate.zip(state.waiters).map(|(at_gate, behind)| at_gate + behind);
            Ok(state)
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.stores.ready())
    }

    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.stores.admits(key))
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
    /// Ends a hold in the authority, and then in the gate. So no waiter that the gate admits finds the lock still held. If
    /// the authority does not answer, the gate stays held too, until a second release or until the ttl.
    pub(super) async fn end(
        &self,
        hold: &Hold,
        ending: impl for<'a> FnOnce(&'a dyn Backend, &'a Hold) -> BoxFuture<'a, Result<Released>> + Send,
    ) -> Result<Released> {
        let (session, in_authority) = self.stores.parts(hold)?;
        let released = ending(&*self.stores.second, &in_authority).await;
        let released = released.map_err(|error| self.stores.error_of_second(error))?;
        self.stores.leave_gate(&session, &hold.claim).await;
        Ok(released)
    }
}
