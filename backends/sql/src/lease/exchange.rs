//! The ends of a hold, which may have a turn in the wait queue and may go to the next caller of this process.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Error, Exchange, Hold, Released, Result, RunEnd};
use futures::future::BoxFuture;

use crate::dialect::Dialect;
use crate::lease::ending;
use crate::lease::queue::{pass, release, turn_of};
use crate::lease::store::LeaseRow;

impl<D: Dialect> Exchange for LeaseRow<D> {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(async move {
            let is_plain = next.once_per.is_none() && next.key == hold.claim.key;
            let Some(turn) = turn_of::<D>(hold).filter(|_| is_plain) else {
                let released = self.free(hold).await?;
                let asked = if is_plain { self.wait_queue.ask(next, until).await.for_next() } else { None };
                return Ok((released, asked));
            };
            match pass(&self.wait_queue, turn, &hold.claim, next, until).await {
                Some(answer) => answer,
                // If this frees the row, it was not passed on, and never will be: it has another owner by then.
                None => Ok((self.free_again(&hold.claim).await?, None)),
            }
        })
    }
}

impl<D: Dialect> LeaseRow<D> {
    /// Frees the row.
    pub(crate) async fn free(&self, hold: &Hold) -> Result<Released> {
        let turn = turn_of::<D>(hold);
        let has_waited = turn.as_ref().is_some_and(|turn| turn.has_waited);
        let freed = match turn {
            None => self.run_for(&hold.claim, |session, claim| Box::pin(ending::release(session, claim))).await,
            Some(turn) => match release(turn, &hold.claim).await {
                Some(answer) => answer,
                None => self.free_again(&hold.claim).await,
            },
        };
        self.wait_queue.note_end(hold, has_waited);
        freed
    }

    /// Frees the row after a request to do so that had no answer.
    async fn free_again(&self, claim: &Arc<Claim>) -> Result<Released> {
        match self.run_for(claim, |session, claim| Box::pin(ending::release(session, claim))).await? {
            Released::Released => Ok(Released::Released),
            Released::NotOwner => Err(Error::outage("the session ended before it answered the release of the lock")),
        }
    }

    /// Frees the row or keeps it for some time, and records how its run went.
    pub(crate) async fn end(&self, hold: &Hold, keep: Duration, run: Option<RunEnd>) -> Result<Released> {
        let turn = turn_of::<D>(hold);
        let end = self.run_for(&hold.claim, move |session, claim| Box::pin(ending::end(session, claim, keep, run)));
        let ended = end.await;
        self.wait_queue.note_end(hold, turn.as_ref().is_some_and(|turn| turn.has_waited));
        if let Some(turn) = turn {
            // The first waiter looks when the row is free, if it is kept.
            turn.sessions.runtime.clone().spawn(turn.leave());
        }
        ended
    }
}
