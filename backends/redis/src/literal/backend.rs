//! The contract's requests under literal names: each goes to [`Redis`](crate::Redis) with the name translated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Batch, BootInstant, Claim, Exchange, Health, Hold, Identity, Inspect, Keeps, LastSuccess,
    LockKey, LockState, Periods, Profile, Queue, Released, Reservation, Reserved, Result, RunEnd, Standing, Together,
    Tokens,
};
use futures::future::BoxFuture;

use crate::literal::store::Literal;
use crate::literal::translate::{for_claim, inside, under_its_name};

impl Backend for Literal {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn host(&self) -> Option<String> {
        self.redis.host()
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(&key.literal()?))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim, queue))
    }

    fn expects_others(&self, key: &LockKey) {
        if let Ok(name) = key.literal() {
            self.redis.expects_others(&name);
        }
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.redis.release(&inside(hold)?).await })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match under_its_name(claim) {
                Ok(named) => self.redis.abandon(&named).await,
                // The claim was refused, so nothing of it is in the server.
                Err(_) => Ok(()),
            }
        })
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move { self.redis.state(&key.literal()?).await })
    }

    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        self.redis.ready()
    }

    fn keeps(&self) -> Option<&dyn Keeps> {
        Some(self)
    }

    fn periods(&self) -> Option<&dyn Periods> {
        Some(self)
    }

    fn tokens(&self) -> Option<&dyn Tokens> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        self.redis.exchange().map(|_| self as &dyn Exchange)
    }

    fn batch(&self) -> Option<&dyn Batch> {
        self.redis.batch().map(|_| self as &dyn Batch)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.redis.close()
    }
}

impl Keeps for Literal {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.redis.keep(&inside(hold)?, time, run).await })
    }
}

impl Periods for Literal {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { self.redis.end_run(&inside(hold)?, run).await })
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move { self.redis.last_success(&key.literal()?).await })
    }
}

impl Tokens for Literal {
    fn reserve<'a>(&'a self, hold: &'a Hold, reservation: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move { self.redis.reserve(&inside(hold)?, reservation).await })
    }
}

impl Exchange for Literal {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let (released, attempt) = self.redis.release_to(&inside(hold)?, &under_its_name(next)?, until).await?;
            Ok((released, attempt.map(|attempt| for_claim(attempt, next))))
        })
    }
}

impl Batch for Literal {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(self.attempt_all(claims))
    }

    fn takes_any_keys(&self) -> bool {
        self.redis.takes_any_keys()
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Literal({:?})", self.redis.connections.target)
    }
}
