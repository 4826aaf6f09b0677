//! One attempt: the first store, then the second. Also inside a wait, when the first store hands its lock over.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Queue, Result, Signal, Wake};
use futures::future::BoxFuture;

use crate::in_order::entry::Entry;
use crate::in_order::errors::told_after;
use crate::in_order::first_part::FirstPart;
use crate::in_order::{Both, InOrder, Kind, Undo};

impl InOrder {
    pub(crate) async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        match self.enter(claim, queue).await? {
            Entry::Through => self.ask_second(claim, queue).await,
            Entry::Answered(attempt) => Ok(attempt),
        }
    }

    async fn ask_second(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        match self.second.try_acquire(&self.for_second(claim), queue).await {
            Ok(Attempt::Acquired(hold)) => self.grant(claim, hold).map(Attempt::Acquired),
            Ok(Attempt::Contended(mut wake)) if queue == Queue::Leave => {
                self.leave(claim).await?;
                wake.signal = None;
                Ok(Attempt::Contended(wake))
            }
            Ok(Attempt::Contended(wake)) => Ok(Attempt::Contended(self.behind_second(claim, wake))),
            Ok(Attempt::AlreadyRun) => {
                self.leave(claim).await?;
                Ok(Attempt::AlreadyRun)
            }
            Err(error) => Err(self.without_second(claim, error).await),
        }
    }

    /// Goes on with a lock that the first store has handed over.
    async fn go_on(self: &Arc<Self>, claim: &Arc<Claim>, first: Hold) -> Result<Signal> {
        self.note_passage(claim, FirstPart::Held(Arc::new(first)));
        // If the second store is contended, the next attempt joins its wait queue.
        match self.second.try_acquire(&self.for_second(claim), Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => self.grant(claim, hold).map(Signal::Granted),
            // The next attempt hears it too, and leaves the first store.
            Ok(Attempt::Contended(_) | Attempt::AlreadyRun) => Ok(Signal::Ask),
            Err(error) => Err(self.without_second(claim, error).await),
        }
    }

    /// The second store failed. A gate is freed: whoever cannot ask the authority must not keep others from it. Where both
    /// stores decide, the engine abandons the claim or asks again.
    async fn without_second(self: &Arc<Self>, claim: &Arc<Claim>, error: Error) -> Error {
        let [_, name] = self.kind.names();
        let nothing_left = self.kind == Kind::Gate && matches!(self.leave(claim).await, Ok(true));
        told_after(name, error, nothing_left)
    }

    /// A waiter of the first store.
    pub(super) fn behind_first(self: &Arc<Self>, claim: &Arc<Claim>, mut wake: Wake) -> Wake {
        let (stores, claim) = (self.clone(), claim.clone());
        wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
            Box::pin(async move {
                match signal.await.map_err(|error| stores.by_first(error))? {
                    Signal::Granted(first) => stores.go_on(&claim, first).await,
                    Signal::Ask => Ok(Signal::Ask),
                }
            })
        });
        wake
    }

    /// A waiter of the second store, which has the first one meanwhile. It asks again before the lease there ends.
    fn behind_second(self: &Arc<Self>, claim: &Arc<Claim>, mut wake: Wake) -> Wake {
        if let Some(passage) = self.passages.get(&claim.owner)
            && matches!(passage.first, FirstPart::Held(_))
        {
            wake.ask_by = Some(wake.ask_by.map_or(passage.until, |by| by.min(passage.until)));
        }
        let (stores, claim) = (self.clone(), claim.clone());
        wake.signal = wake.signal.map(|signal| -> BoxFuture<'static, Result<Signal>> {
            Box::pin(async move {
                match signal.await.map_err(|error| stores.by_second(error))? {
                    Signal::Granted(hold) => stores.grant(&claim, hold).map(Signal::Granted),
                    Signal::Ask => Ok(Signal::Ask),
                }
            })
        });
        wake
    }

    /// Makes one hold of the locks in both stores.
    fn grant(self: &Arc<Self>, claim: &Arc<Claim>, second: Hold) -> Result<Hold> {
        let first = self.passages.take(&claim.owner).map_or(FirstPart::Nothing, |passage| passage.first);
        let mut hold = second.for_claim(claim.clone());
        if let (Kind::Equals { numbers_of_second }, first) = (self.kind, &first) {
            let FirstPart::Held(first) = first else {
                return Err(Error::new(ErrorKind::Internal, "a lock was granted without the lock in the old store")
                    .with_retryable(true));
            };
            if first.validity.deadline() < hold.validity.deadline() {
                hold.validity = first.validity;
            }
            if !numbers_of_second {
                (hold.token, hold.slot) = (first.token, first.slot);
            }
        }
        let both = Arc::new(Both::new(self.kind, first, second));
        if self.kind == Kind::Gate {
            self.keep_gate(&both);
        }
        Ok(hold.with_session(both))
    }

    /// Ends what a claim has in the first store. False if a gate has not confirmed it yet.
    ///
    /// A late end in a store that decides could meet what the same owner wins next. There it is tried once, in place, and
    /// an error leaves it to the engine, which does not ask again by this owner.
    pub(super) async fn leave(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<bool> {
        match self.passages.take(&claim.owner).map(|passage| passage.first) {
            None | Some(FirstPart::Nothing) => Ok(true),
            Some(FirstPart::Held(_) | FirstPart::Unknown) if self.kind == Kind::Gate => {
                Ok(self.undo(Undo::Abandon(claim.clone())).await)
            }
            Some(FirstPart::Held(_) | FirstPart::Unknown) => {
                let left = self.first.abandon(claim).await;
                left.map(|()| true)
                    .map_err(|error| told_after(self.kind.names()[0], error, false).with_retryable(false))
            }
        }
    }

    /// Ends an acquisition in both stores.
    pub(crate) async fn abandon(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<()> {
        self.passages.take(&claim.owner);
        if let Some(bypass) = &self.bypass {
            bypass.forget_place(&claim.owner);
        }
        let of_second = self.for_second(claim);
        let in_second = async { self.second.abandon(&of_second).await.map_err(|error| self.by_second(error)) };
        let in_first = async {
            if self.skips_first(claim) {
                return Ok(());
            }
            if self.first_is_passed_over() {
                // A place in its line may be left from before. The caller does not wait for a store that is down.
                self.undo_later(&self.first, Undo::Abandon(claim.clone()));
                return Ok(());
            }
            self.first.abandon(claim).await.map_err(|error| self.by_first(error))
        };
        // Beside each other: a store that does not answer must not keep the other one from being asked.
        let (in_second, in_first) = futures::join!(in_second, in_first);
        in_second.and(in_first)
    }
}
