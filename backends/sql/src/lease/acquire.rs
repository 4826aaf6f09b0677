//! An attempt of a caller, which may wait in the waiting room from then on, and how it is undone.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Claim, Error, Queue, Result};

use crate::dialect::Dialect;
use crate::lease::room::{Outlook, RoomAnswer, RowTurn, Ticket, Told, inside_of};
use crate::lease::store::LeaseRow;
use crate::lease::{attempt, ending};

/// How long an abandon waits for the attempt that it undoes.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

impl<D: Dialect> LeaseRow<D> {
    /// Asks once for the lock. If others have it and the caller waits, it stands in the waiting room from now on.
    pub(crate) async fn acquire(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let Queue::Join { until, .. } = queue else { return self.ask_for_row(claim, None).await };
        if !self.room.is_open() {
            return self.ask_for_row(claim, None).await;
        }
        if let Some(ticket) = self.room.ticket_of(&claim.owner) {
            return self.ask_again(claim, queue, ticket).await;
        }
        // The way of the namespace is known if others of this process have waited for the lock.
        if self.is_contended(claim).await
            && let RoomAnswer::Answered(attempt) = self.room.ask(claim, until).await
        {
            return Ok(attempt);
        }
        match self.ask_for_row(claim, None).await? {
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.room.stand(claim, queue, wake).await)),
            attempt => Ok(attempt),
        }
    }

    /// Whether others had the lock a moment ago, or wait for it. If that is not known, it looks whether they wait.
    async fn is_contended(&self, claim: &Arc<Claim>) -> bool {
        match self.room.outlook(claim) {
            Outlook::Quiet => return false,
            Outlook::Contended => return true,
            Outlook::Unknown => {}
        }
        self.room.departure(claim).await;
        let room = self.room.clone();
        let looking =
            self.run_for(claim, move |session, claim| Box::pin(async move { room.is_occupied(session, claim).await }));
        // Not an error of the call: then it asks for the row as if nobody waited.
        looking.await.unwrap_or(false)
    }

    /// An attempt of a caller that stands in the room already. It finds the row free if the first one in the room has stopped,
    /// for instance with its process.
    async fn ask_again(&self, claim: &Arc<Claim>, queue: Queue, ticket: Arc<Ticket>) -> Result<Attempt> {
        let turn = ticket.waiter.row_turn().await;
        if let Some(hold) = ticket.waiter.granted() {
            return Ok(Attempt::Acquired(hold));
        }
        match self.ask_for_row(claim, Some((turn, ticket.clone()))).await? {
            Attempt::Contended(wake) if ticket.waiter.has_ended() => {
                Ok(Attempt::Contended(self.room.stand(claim, queue, wake).await))
            }
            Attempt::Contended(wake) => {
                ticket.waiter.note_contended(Told::of(wake));
                Ok(Attempt::Contended(ticket.wake()))
            }
            attempt => Ok(attempt),
        }
    }

    /// Asks for the row, outside of the room.
    async fn ask_for_row(&self, claim: &Arc<Claim>, stands: Option<(RowTurn, Arc<Ticket>)>) -> Result<Attempt> {
        let (pending_attempt, ways) = (self.pending_attempts.begin(claim.owner), self.ways.clone());
        self.run_for(claim, move |session, claim| {
            Box::pin(async move {
                let given_up = pending_attempt.given_up();
                let asking = async {
                    if !ways.has(&claim.key) {
                        ways.agree(session, &claim.key).await?;
                    }
                    attempt::acquire(session, claim).await
                };
                let attempt = tokio::select! {
                    biased;
                    () = given_up => Err(Error::outage("the attempt was given up")),
                    attempt = asking => attempt,
                }?;
                if let (Attempt::Acquired(_), Some((_, ticket))) = (&attempt, &stands) {
                    // Before its turn ends: the task in the room would take the row once more, perhaps after its release.
                    drop(ticket.waiter.give_up());
                }
                Ok(attempt)
            })
        })
        .await
    }

    /// Frees what a claim may have won, and ends its wait.
    pub(crate) async fn undo(&self, claim: &Arc<Claim>) -> Result<()> {
        if self.context.row_name(&claim.key).is_err() {
            // The claim was refused, so nothing of it is in the server.
            return Ok(());
        }
        let clock = &self.context.clock;
        let until = clock.now().after(ATTEMPT_TIMEOUT);
        let mut answered = clock.timeout_at(until, self.pending_attempts.wait_for(&claim.owner)).await;
        let left = self.room.ticket_of(&claim.owner).and_then(|ticket| ticket.waiter.give_up());
        if answered.is_some() {
            // The task in the room may have sent its statement meanwhile.
            answered = clock.timeout_at(until, self.pending_attempts.wait_for(&claim.owner)).await;
        }
        if answered.is_none() {
            // It may stand still with its runtime. It must send nothing more when that goes on: nobody would undo it.
            self.pending_attempts.give_up(&claim.owner);
        }
        // Even without an answer to the attempt: the server may have done what it asked for.
        self.run_for(claim, |session, claim| Box::pin(ending::abandon(session, claim))).await?;
        if let Some(inside) = left.as_ref().and_then(inside_of::<D>) {
            // The row is free now.
            inside.sessions.place.clone().spawn(inside.leave());
        }
        answered.ok_or_else(|| Error::outage("the attempt that must be undone has no answer yet"))
    }
}
