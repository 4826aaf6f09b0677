//! A release that also asks for the lock for the next caller of this process: one request instead of two.
//!
//! It asks with an owner id of its own, not with the caller's. If the answer is lost, the releaser undoes the request
//! over the same connection, and the caller may ask for itself meanwhile. It runs as a task, because the next caller
//! waits for the answer also while nobody polls the future that releases.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Error, Origin, Owner, Released, Result};
use dlock_store::engine::simulation::planted;
use dlock_store::{CallerRuntime, background};
use tokio::sync::oneshot;

use crate::events::shutdown::Job;
use crate::events::store_event::Operation;
use crate::hold::abandon::abandon_later;
use crate::hold::tenure::Tenure;
use crate::queue::{Content, Handover, NextWaiter, Turn};

/// A release on its way, with the claim of the next caller. If it is dropped without an answer, it undoes the claim.
pub(crate) struct ReleaseToNext {
    tenure: Arc<Tenure>,
    claim: Arc<Claim>,
    wait_ends: BootInstant,
    /// The next caller's turn and ticket; `None` once that caller has the answer.
    next: Option<(Turn, u64)>,
    /// A shutdown waits for it.
    _job: Job,
}

impl ReleaseToNext {
    /// `None` if there is no waiter for which the release of this hold could ask.
    pub(crate) fn begin(tenure: &Arc<Tenure>) -> Option<Self> {
        let NextWaiter { turn, ticket, claim, wait_ends } = tenure.begin_turn_release()?;
        // Waiters are about to hear of the shutdown.
        if tenure.shared.shutdown.is_closed() {
            return None;
        }
        let owner = Owner::fresh().ok()?;
        // The runtime on which it will run; `None` for our thread. The undo runs there too.
        let origin = Origin::here().filter(|here| tenure.hold.claim.origin == Some(*here));
        let mut claim = (*claim).clone();
        (claim.owner, claim.origin) = (owner, origin);
        Some(Self {
            claim: Arc::new(claim),
            wait_ends,
            next: Some((turn, ticket)),
            tenure: tenure.clone(),
            _job: tenure.shared.jobs.begin(),
        })
    }

    /// Sends the release. Dropping the returned future does not end it.
    pub(crate) async fn send(self, bound: Duration) -> Result<Released> {
        let (sender, answer) = oneshot::channel();
        let origin = self.claim.origin;
        let task = async move {
            // The releaser may be gone.
            let _ = sender.send(self.run(bound).await);
        };
        match CallerRuntime::here() {
            Ok(place) if origin == Some(place.origin()) => drop(place.spawn(task)),
            // The waiters are on another runtime, and this one may stand still while theirs goes on.
            _ => background()?.spawn(task),
        }
        answer.await.unwrap_or_else(|_| Err(Error::outage("the runtime ended before the release was answered")))
    }

    async fn run(self, bound: Duration) -> Result<Released> {
        let wait_ends = self.wait_ends;
        let subject = (self.tenure.clone(), self.claim.clone());
        let request =
            self.tenure.store.ask(Operation::ReleaseToNext, bound, &subject, move |backend, (tenure, claim)| {
                match backend.exchange() {
                    Some(exchange) => exchange.release_to(&tenure.hold, claim, wait_ends),
                    None => Box::pin(async { Ok((backend.release(&tenure.hold).await?, None)) }),
                }
            });
        let answered = request.await;
        let is_granted = answered.as_ref().map(|(_, next)| matches!(next, Some(Attempt::Acquired(_))));
        self.tenure.store.findings.note_answer(self.claim.ttl, is_granted);
        let (released, answer) = answered?;
        let tenure = self.tenure.clone();
        self.deliver(answer);
        tenure.pass_turn();
        Ok(released)
    }

    /// Gives the caller its turn, and with it the store's answer; `None` if the store was not asked.
    fn deliver(mut self, answer: Option<Attempt>) {
        let (Some((turn, ticket)), Some(answer)) = (self.next.take(), answer) else { return };
        let job = self.tenure.shared.jobs.begin();
        let handover = Handover::new(Content::Answer(answer), &self.claim, self.tenure.store.clone(), job);
        if let Some((turn, handover)) = turn.pass_to(ticket, handover) {
            handover.give_back(turn.left());
        }
    }
}

impl Drop for ReleaseToNext {
    fn drop(&mut self) {
        if let Some((turn, _)) = self.next.take()
            && !planted("a release that asks for the next caller is not undone")
        {
            abandon_later(&self.tenure.store, self.claim.clone(), turn.left());
        }
    }
}
