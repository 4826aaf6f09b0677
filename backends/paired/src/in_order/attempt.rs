//! One attempt: first in the first store, then in the second. It also continues a wait when the first store has granted.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Queue, Result, Signal, Wake};
use futures::future::BoxFuture;

use crate::in_order::admit::FirstAnswer;
use crate::in_order::errors::error_after;
use crate::in_order::first_hold::FirstHold;
use crate::in_order::{HoldSession, InOrder, PairKind, Undo};

impl InOrder {
    pub(crate) async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        match self.admit(claim, queue).await? {
            FirstAnswer::Admitted => self.ask_second(claim, queue).await,
            FirstAnswer::Final(attempt) => Ok(attempt),
        }
    }

    async fn ask_second(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        match self.second.try_acquire(&self.for_second(claim), queue).await {
            Ok(Attempt::Acquired(hold)) => self.grant(claim, hold).map(Attempt::Acquired),
            Ok(Attempt::Contended(mut wake)) if queue == Queue::Leave => {
                self.leave_first(claim).await?;
                wake.signal = None;
                Ok(Attempt::Contended(wake))
            }
            Ok(Attempt::Contended(wake)) => Ok(Attempt::Contended(self.wait_in_second(claim, wake))),
            Ok(Attempt::AlreadyRun) => {
                self.leave_first(claim).await?;
                Ok(Attempt::AlreadyRun)
            }
            Err(error) => Err(self.second_failed(claim, error).await),
        }
    }

    /// Continues in the second store after the first store has granted a waiting claim.
    async fn continue_with_second(self: &Arc<Self>, claim: &Arc<Claim>, first: Hold) -> Result<Signal> {
        self.note_admission(claim, FirstHold::Held(Arc::new(first)));
        // If the second store is contended, the next attempt joins its wait queue.
        match self.second.try_acquire(&self.for_second(claim), Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => self.grant(claim, hold).map(Signal::Granted),
            // The next attempt gets the same answer, and then leaves the first store.
            Ok(Attempt::Contended(_) | Attempt::AlreadyRun) => Ok(Signal::Ask),
            Err(error) => Err(self.second_failed(claim, error).await),
        }
    }

    /// The error after a failure of the second store. Frees a gate first: a caller that cannot reach the authority must not
    /// keep others from it. If both stores decide, the engine abandons the claim or asks again.
    async fn second_failed(self: &Arc<Self>, claim: &Arc<Claim>, error: Error) -> Error {
        let [_, name] = self.kind.names();
        let nothing_left = self.kind == PairKind::Gate && matches!(self.leave_first(claim).await, Ok(true));
        error_after(name, error, nothing_left)
    }

    /// The wake of a claim that waits in the first store.
    pub(super) fn wait_in_first(self: &Arc<Self>, claim: &Arc<Claim>, mut wake: Wake) -> Wake {
        let (stores, claim) = (self.clone(), claim.clone());
        wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
            Box::pin(async move {
                match signal.await.map_err(|error| stores.error_of_wait_in_first(error))? {
                    Signal::Granted(first) => stores.continue_with_second(&claim, first).await,
                    Signal::Ask => Ok(Signal::Ask),
                }
            })
        });
        wake
    }

    /// The wake of a claim that holds the lock in the first store and waits in the second. It asks again before its lease in
    /// the first store ends.
    fn wait_in_second(self: &Arc<Self>, claim: &Arc<Claim>, mut wake: Wake) -> Wake {
        if let Some(admission) = self.admissions.get(&claim.owner)
            && matches!(admission.first, FirstHold::Held(_))
        {
            wake.ask_by = Some(wake.ask_by.map_or(admission.until, |by| by.min(admission.until)));
        }
        let (stores, claim) = (self.clone(), claim.clone());
        wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
            Box::pin(async move {
                match signal.await.map_err(|error| stores.error_of_second(error))? {
                    Signal::Granted(hold) => stores.grant(&claim, hold).map(Signal::Granted),
                    Signal::Ask => Ok(Signal::Ask),
                }
            })
        });
        wake
    }

    /// Makes one hold from the holds in both stores.
    fn grant(self: &Arc<Self>, claim: &Arc<Claim>, second: Hold) -> Result<Hold> {
        let first = self.admissions.take(&claim.owner).map_or(FirstHold::Nothing, |admission| admission.first);
        let mut hold = second.for_claim(claim.clone());
        if let (PairKind::Equals { numbers_of_second }, first) = (self.kind, &first) {
            let FirstHold::Held(first) = first else {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "the new store granted a lock that the claim does not hold in the old store",
                )
                .with_retryable(true));
            };
            if first.validity.deadline() < hold.validity.deadline() {
                hold.validity = first.validity;
            }
            if !numbers_of_second {
                (hold.token, hold.slot) = (first.token, first.slot);
            }
        }
        let session = Arc::new(HoldSession::new(self.kind, first, second));
        if self.kind == PairKind::Gate {
            self.keep_gate(&session);
        }
        Ok(hold.with_session(session))
    }

    /// Ends what a claim has in the first store. False if a gate has not confirmed this yet.
    ///
    /// If the first store decides too, this sends one request and waits for its answer. A request that arrives late could end
    /// the next grant of the same owner. So an error here is not retryable: the engine then makes no attempt with this owner.
    pub(super) async fn leave_first(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<bool> {
        match self.admissions.take(&claim.owner).map(|admission| admission.first) {
            None | Some(FirstHold::Nothing) => Ok(true),
            Some(FirstHold::Held(_) | FirstHold::Unknown) if self.kind == PairKind::Gate => {
                Ok(self.undo(Undo::Abandon(claim.clone())).await)
            }
            Some(FirstHold::Held(_) | FirstHold::Unknown) => {
                let left = self.first.abandon(claim).await;
                left.map(|()| true)
                    .map_err(|error| error_after(self.kind.names()[0], error, false).with_retryable(false))
            }
        }
    }

    /// Abandons a claim in both stores.
    pub(crate) async fn abandon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<()> {
        self.admissions.take(&claim.owner);
        if let Some(bypass) = &self.bypass {
            bypass.forget_place(&claim.owner);
        }
        let of_second = self.for_second(claim);
        let in_second = async { self.second.abandon(&of_second).await.map_err(|error| self.error_of_second(error)) };
        let in_first = async {
            if self.skips_first(claim) {
                return Ok(());
            }
            if self.is_first_bypassed() {
                // The claim may still have a place in the first store's queue. The caller does not wait for a store that is
                // down.
                self.undo_later(&self.first, Undo::Abandon(claim.clone()));
                return Ok(());
            }
            self.first.abandon(claim).await.map_err(|error| self.error_of_first(error))
        };
        // At the same time: a store that does not answer must not delay the request to the other one.
        let (in_second, in_first) = futures::join!(in_second, in_first);
        in_second.and(in_first)
    }
}
