//! A release that asks for the next caller of its process: one request where there were two.
//!
//! It asks under a name of its own, not under the one that the caller would ask with: if its answer is lost, whoever
//! sent it undoes it, over the connection on which it went, and the caller is free to ask by itself meanwhile. It runs as
//! a task: somebody waits for what it brings, also while nobody polls the future that releases.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::{Place, background, here};
use dlock_contract::{Attempt, BootInstant, Claim, Error, Owner, Released, Result};
use tokio::sync::oneshot;

use crate::events::shutdown::Job;
use crate::hold::abandon::abandon_later;
use crate::hold::tenure::Tenure;
use crate::queue::{Content, Handover, Next, Turn};

/// A release on its way, with what it asks for. Dropped without an answer, it undoes what it may have left in the store.
pub(crate) struct ReleaseToNext {
    tenure: Arc<Tenure>,
    claim: Arc<Claim>,
    wait_ends: BootInstant,
    /// Whom it is for; `None` once that one has the answer.
    next: Option<(Turn, u64)>,
    /// A shutdown waits for it.
    _job: Job,
}

impl ReleaseToNext {
    /// `None` if nobody waits for whom the release of this hold could ask.
    pub(crate) fn begin(tenure: &Arc<Tenure>) -> Option<Self> {
        let Next { turn, ticket, claim, wait_ends } = tenure.next()?;
        // Whoever waits is about to hear of the shutdown.
        if tenure.shared.shutdown.is_closed() {
            return None;
        }
        let owner = Owner::fresh().ok()?;
        // Where it will run; `None` for our thread, from which it is undone too.
        let origin = here().filter(|here| tenure.hold.claim.origin == Some(*here));
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
        let (to, answer) = oneshot::channel();
        let home = self.claim.origin;
        let task = async move {
            // Whoever released may be gone.
            let _ = to.send(self.run(bound).await);
        };
        match Place::here() {
            Ok(place) if home == Some(place.id()) => drop(place.spawn(task)),
            // Those who wait for its answer are elsewhere, and this runtime may stand still while theirs goes on.
            _ => background()?.spawn(task),
        }
        answer.await.unwrap_or_else(|_| Err(Error::outage("the runtime ended before the release was answered")))
    }

    async fn run(self, bound: Duration) -> Result<Released> {
        let wait_ends = self.wait_ends;
        let subject = (self.tenure.clone(), self.claim.clone());
        let request = self
            .tenure
            .store
            .ask(bound, &subject, move |backend, (tenure, claim)| backend.release_to(&tenure.hold, claim, wait_ends));
        let (released, answer) = request.await?;
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
        if let Some((turn, _)) = self.next.take() {
            abandon_later(&self.tenure.store, self.claim.clone(), turn.left());
        }
    }
}
