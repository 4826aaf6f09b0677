//! An attempt of a caller, which may join the wait queue, and its undo.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, Queue, Result};

use crate::connection::pending_attempts::ATTEMPT_TIMEOUT;
use crate::dialect::Dialect;
use crate::lease::queue::{AttemptGuard, Contention, HolderState, Place, QueueAnswer, turn_of};
use crate::lease::store::LeaseRow;
use crate::lease::{attempt, ending};

impl<D: Dialect> LeaseRow<D> {
    /// Asks once for the lock. If others have it and the caller waits, it joins the wait queue.
    pub(crate) async fn acquire(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let Queue::Join { until, .. } = queue else { return self.ask_for_row(claim, None).await };
        if !self.wait_queue.is_supported() {
            return self.ask_for_row(claim, None).await;
        }
        if let Some(place) = self.wait_queue.place_of(&claim.owner) {
            return self.ask_again(claim, queue, place).await;
        }
        // The way of the namespace is known if others of this process have waited for the lock.
        if self.is_contended(claim).await
            && let QueueAnswer::Answered(attempt) = self.wait_queue.ask(claim, until).await
        {
            return Ok(attempt);
        }
        match self.ask_for_row(claim, None).await? {
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.wait_queue.join(claim, queue, wake).await)),
            attempt => Ok(attempt),
        }
    }

    /// Whether others had the lock a moment ago, or wait for it. If that is not known, it asks the server whether they
    /// wait.
    async fn is_contended(&self, claim: &Arc<Claim>) -> bool {
        match self.wait_queue.contention(claim) {
            Contention::Unlikely => return false,
            Contention::Recent => return true,
            Contention::Possible => {}
        }
        self.wait_queue.wait_for_leave(claim).await;
        let queue = self.wait_queue.clone();
        let looking = self
            .run_for(claim, move |session, claim| Box::pin(async move { queue.look_at_turn(session, claim).await }));
        // Not an error of the call: then it asks for the row as if nobody waited.
        looking.await.unwrap_or(false)
    }

    /// An attempt of a caller that is in the queue already. It finds the row free if the waiter with the turn has
    /// stopped, for instance with its process.
    async fn ask_again(&self, claim: &Arc<Claim>, queue: Queue, place: Arc<Place>) -> Result<Attempt> {
        let guard = place.waiter.attempt_guard().await;
        if let Some(hold) = place.waiter.granted() {
            return Ok(Attempt::Acquired(hold));
        }
        match self.ask_for_row(claim, Some((guard, place.clone()))).await? {
            Attempt::Contended(wake) if place.waiter.has_ended() => {
                Ok(Attempt::Contended(self.wait_queue.join(claim, queue, wake).await))
            }
            Attempt::Contended(wake) => {
                place.waiter.note_contended(HolderState::of(wake));
                Ok(Attempt::Contended(place.wake()))
            }
            attempt => Ok(attempt),
        }
    }

    /// Asks for the row, without the turn.
    async fn ask_for_row(&self, claim: &Arc<Claim>, waiting: Option<(AttemptGuard, Arc<Place>)>) -> Result<Attempt> {
        self.end_earlier_attempt(claim).await?;
        let (pending_attempt, ways) = (self.pending_attempts.begin(claim.owner), self.ways.clone());
        self.run_for(claim, move |session, claim| {
            Box::pin(async move {
                let given_up = pending_attempt.given_up();
                let asking = async {
                    if !ways.has(&claim.key) {
                        session.agree(&ways, &claim.key).await?;
                    }
                    attempt::acquire(session, claim).await
                };
                let attempt = tokio::select! {
                    biased;
                    () = given_up => Err(Error::outage("the attempt was given up")),
                    attempt = asking => attempt,
                }?;
                if let (Attempt::Acquired(_), Some((_, place))) = (&attempt, &waiting) {
                    // Before the guard ends: the waiter's task would take the row once more, perhaps after its release.
                    drop(place.waiter.give_up());
                }
                Ok(attempt)
            })
        })
        .await
    }

    /// Ends an attempt of this owner whose caller has given it up. Its statement could take the row after the new attempt has
    /// freed it.
    async fn end_earlier_attempt(&self, claim: &Claim) -> Result<()> {
        self.pending_attempts.give_up(&claim.owner);
        let (clock, ending) = (&self.context.clock, self.pending_attempts.wait_for(&claim.owner));
        let ended = clock.timeout_at(clock.now().after(ATTEMPT_TIMEOUT), ending).await;
        ended.ok_or_else(|| Error::outage("an earlier attempt of this caller has no answer yet"))
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
        let left = self.wait_queue.place_of(&claim.owner).and_then(|place| place.waiter.give_up());
        if answered.is_some() {
            // The waiter's task may have sent its statement meanwhile.
            answered = clock.timeout_at(until, self.pending_attempts.wait_for(&claim.owner)).await;
        }
        if answered.is_none() {
            // Its runtime may be blocked. When the runtime goes on, the attempt must send nothing more: nobody would
            // undo it.
            self.pending_attempts.give_up(&claim.owner);
        }
        // Even without an answer to the attempt: the server may have done what it asked for.
        self.run_for(claim, |session, claim| Box::pin(ending::abandon(session, claim))).await?;
        if let Some(turn) = left.as_ref().and_then(turn_of::<D>) {
            // The row is free now.
            turn.sessions.runtime.clone().spawn(turn.leave());
        }
        answered.ok_or_else(|| Error::outage("the attempt that must be undone has no answer yet"))
    }
}
