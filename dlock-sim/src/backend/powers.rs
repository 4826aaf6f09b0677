//! The powers of the model store, beyond plain locks.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Batch, BootInstant, Claim, Error, ErrorKind, Exchange, Hold, Keeps, LastSuccess, LockKey, Periods,
    Released, Reservation, Reserved, Result, RunEnd, Settle, Together, Tokens,
};
use futures::future::BoxFuture;

use super::{Model, key_of, release, token_of};
use crate::history::What;
use crate::store::{Grant, Reserve};

impl Tokens for Model {
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move {
            let (from, held) = (self.clock.now(), self.won(hold));
            let reserved = self.ask(held.call, "reserve", move |world, _| {
                world.store.reserve(held, u64::from(asked.tokens), asked.even_if_awaited, world.now)
            });
            Ok(match reserved.await? {
                Reserve::Tokens(first) => Reserved::Tokens { first, validity: self.validity(from, hold.claim.ttl) },
                Reserve::Awaited => Reserved::Awaited,
                Reserve::Lost => Reserved::Lost,
            })
        })
    }
}

impl Exchange for Model {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let (from, held, mut take) =
                (self.clock.now(), self.won(hold), self.take(self.hold_of(next, 0), Some(until)));
            let answer = self.ask(held.call, "release to next", move |world, number| {
                (release(world, held, number), take(world, number))
            });
            let (is_owner, answer) = answer.await?;
            let released = if is_owner { Released::Released } else { Released::NotOwner };
            Ok((released, Some(self.attempt(next, from, answer)?)))
        })
    }
}

impl Model {
    /// Ends a hold, keeps its key for a time, and notes the end of its run.
    async fn end(&self, hold: &Hold, keep: Option<Duration>, run: Option<RunEnd>) -> Result<Released> {
        let held = self.won(hold);
        let ended = self.ask(held.call, "end", move |world, number| {
            let (is_owner, listeners) = world.store.end(held, keep, run.is_some(), number, world.now);
            if is_owner && run.is_some() {
                world.add(0, 0, What::EndsRun { key: held.key, token: held.token });
            }
            if is_owner && keep.is_some() {
                world.add(0, 0, What::Keeps { key: held.key, token: held.token });
            }
            world.tell(listeners);
            world.serve(held.key);
            is_owner
        });
        Ok(if ended.await? { Released::Released } else { Released::NotOwner })
    }
}

impl Keeps for Model {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, Some(time), run))
    }
}

impl Periods for Model {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, None, Some(run)))
    }

    fn last_success<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async { Ok(None) })
    }
}

impl Batch for Model {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(async move {
            let (from, asked) =
                (self.clock.now(), claims.iter().map(|claim| self.hold_of(claim, 0)).collect::<Vec<_>>());
            let answer = self.ask(asked.first().map_or(0, |hold| hold.call), "acquire all", move |world, number| {
                let grants = world.store.acquire_all(&asked, number, world.now);
                for (hold, grant) in asked.iter().zip(grants.iter().flatten()) {
                    world.grants(*hold, grant.token);
                }
                grants
            });
            let Some(grants) = answer.await? else { return Ok(Together::Contended) };
            let hold = |(claim, grant): (&Arc<Claim>, Grant)| {
                self.sessions.hold(claim.clone(), grant, self.validity(from, claim.ttl))
            };
            claims.iter().zip(grants).map(hold).collect::<Result<_>>().map(Together::Acquired)
        })
    }
}

impl Settle for Model {
    fn has_work(&self, hold: &Hold) -> bool {
        let work = (key_of(&hold.claim.key), token_of(hold));
        self.world.with(|world| world.worked.contains(&work))
    }

    fn settle<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let held = self.won(hold);
            let settled = self.ask(held.call, "settle", move |world, _| {
                let settled = world.store.settle(held, world.now);
                let is_final = settled.is_some();
                if is_final {
                    world.add(0, 0, What::Settles { key: held.key, token: held.token });
                }
                world.tell(settled.unwrap_or_default());
                world.serve(held.key);
                is_final
            });
            if settled.await? {
                return Ok(());
            }
            Err(Error::new(ErrorKind::CommitRefused, "the transaction has ended, and nothing of its work stays"))
        })
    }
}
