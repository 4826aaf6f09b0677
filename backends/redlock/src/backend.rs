//! The contract's requests, each as a round of requests to all nodes.

use std::fmt;
use std::sync::Arc;

use dlock_contract::{
    Attempt, Backend, Claim, Health, Hold, Identity, Inspect, LockKey, LockState, Profile, Queue, Released, Result,
    Standing,
};
use futures::future::BoxFuture;

use dlock_redis::internal::literal::{all_inside, for_claim, inside, under_its_name};

use dlock_redis::internal::layout::in_redis;

use super::store::Redlock;

impl Backend for Redlock {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        let nodes: Vec<_> = self.nodes.iter().map(|node| format!("{node:?}")).collect();
        Some(nodes.join(", "))
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        if self.is_literal { Ok(Identity::of(&key.literal()?)) } else { Ok(Identity::of(key).named(in_redis(key))) }
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            if !self.is_literal {
                return self.attempt(claim, queue).await;
            }
            self.attempt(&under_its_name(claim)?, queue).await.map(|attempt| for_claim(attempt, claim))
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            if !self.is_literal {
                return self.renew_all(holds).await;
            }
            match all_inside(holds) {
                Ok(named) => self.renew_all(&named.iter().collect::<Vec<_>>()).await,
                Err(none) => none,
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { if self.is_literal { self.free(&inside(hold)?).await } else { self.free(hold).await } })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.is_literal.then(|| under_its_name(claim)) {
                None => self.give_up(claim).await,
                Some(Ok(named)) => self.give_up(&named).await,
                // The claim was refused, so nothing of it is in the servers.
                Some(Err(_)) => Ok(()),
            }
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move { self.state(&self.named(key)?).await })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.health())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.nodes.iter().for_each(|node| node.close());
        Box::pin(async {})
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redlock({:?})", self.nodes)
    }
}
