//! The powers of the reference backend.

use std::sync::Arc;
use std::time::Duration;

use dlock::{Error, ErrorKind, HoldId, LastSuccess, LockKey, Note, Result};
use dlock_contract::{
    Attempt, Batch, BootInstant, BreakRecord, Claim, Exchange, Hold, Inspect, Keeps, Listing, Owner, Page, Periods,
    Released, Reservation, Reserved, RunEnd, Settle, Together, Tokens, Validity,
};
use futures::future::BoxFuture;

use super::{Client, steps};
use crate::ends::Refused;
use crate::lies::Lie;
use crate::server::Answer;
use crate::together;

impl Keeps for Client {
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, Some(time), run))
    }
}

impl Periods for Client {
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.end(hold, None, Some(run)))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            Ok(self.server.last_success(key))
        })
    }
}

impl Tokens for Client {
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(async move {
            let from = self.clock.now();
            self.wire(&hold.claim.owner).await?;
            let claim = self.in_two_steps(Lie::ReservesInTwoSteps, &hold.claim).await;
            let reserved = self.server.reserve(&claim, asked, self.id, self.clock.wall_ms());
            self.reply().await;
            Ok(match reserved {
                Err(Refused::Lost) => Reserved::Lost,
                Err(Refused::Awaited) => Reserved::Awaited,
                Ok(first) => {
                    Reserved::Tokens { first, validity: Validity::new(from, self.server.stored(hold.claim.ttl)) }
                }
            })
        })
    }
}

impl Exchange for Client {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let from = self.clock.now();
            self.wire(&next.owner).await?;
            let claim = self.in_two_steps(Lie::CarriesInTwoSteps, &hold.claim).await;
            let (server, asked, id) = (self.server.clone(), next.clone(), self.id);
            let wall = self.clock.wall_ms();
            let request = move || server.release_to(&claim, &asked, until, id, wall);
            let (released, answer) = match self.tells(Lie::AbandonOvertakesCarried) {
                true => steps::on_our_thread(request).await,
                false => request(),
            };
            self.reply().await;
            let released = if released { Released::Released } else { Released::NotOwner };
            if released == Released::Released {
                self.memory().carried.insert(next.owner);
            }
            let from = if self.tells(Lie::CarriedCountsFromReply) { self.clock.now() } else { from };
            let answer = match answer {
                Answer::Granted(grant) => Attempt::Acquired(self.hold(next, grant, from)?),
                answer => self.wake(next, answer)?,
            };
            Ok((released, Some(answer)))
        })
    }
}

impl Batch for Client {
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(async move {
            let from = self.clock.now();
            self.wire(&claims.first().map_or(Owner::from_bytes([0; 16]), |claim| claim.owner)).await?;
            let (server, id, wall) = (self.server.clone(), self.id, self.clock.wall_ms());
            let granted = if self.tells(Lie::AbandonOvertakesTogether) {
                let claims = claims.to_vec();
                steps::on_our_thread(move || server.ask_all(&claims, id, wall)).await
            } else {
                together::ask(&server, claims, id, wall).await
            };
            self.reply().await;
            let Some(granted) = granted else { return Ok(Together::Contended) };
            let holds = claims.iter().zip(granted).map(|(claim, grant)| self.hold(claim, grant, from));
            Ok(Together::Acquired(holds.collect::<Result<_>>()?))
        })
    }
}

impl Settle for Client {
    fn has_work(&self, hold: &Hold) -> bool {
        self.server.state().working.contains(&hold.claim.owner) && !self.tells(Lie::SeesNoWork)
    }

    fn settle<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.wire(&hold.claim.owner).await?;
            let settled = self.server.settle(&hold.claim);
            self.reply().await;
            if settled { Ok(()) } else { Err(Error::new(ErrorKind::CommitRefused, "the hold had ended")) }
        })
    }
}

impl Inspect for Client {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            self.server.list(listing, self.clock.wall_ms())
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            let holder = self.server.holder(&self.server.name(key));
            let compared = holder.filter(|holder| HoldId::of(holder) == id);
            let later = match compared {
                Some(owner) => self.later_holder(Lie::BreaksInTwoSteps, key, owner).await,
                None => None,
            };
            let id = later.map_or(id, |owner| HoldId::of(&owner));
            Ok(self.server.break_hold(key, id, record, self.clock.wall_ms()))
        })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            Ok(Some(self.server.waiters(key, limit, self.clock.wall_ms())))
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            self.wire(&Owner::from_bytes([0; 16])).await?;
            Ok(self.server.state().broken.get(&HoldId::of(&hold.claim.owner)).cloned())
        })
    }
}
