//! A release that asks for the next caller of this process: one request where there were two.
//!
//! It asks under a name of its own, not under the one that the caller would ask with: if its answer is lost, whoever
//! sent it undoes it, over the connection on which it went, and the caller is free to ask by itself meanwhile.

use std::sync::Arc;

use crate::backend::{Attempt, Claim};
use crate::background::here;
use crate::baton::{Baton, What};
use crate::clock::BootInstant;
use crate::local_queue::{Next, Turn};
use crate::owner::Owner;
use crate::registry::Shared;
use crate::release;
use crate::store::Store;
use crate::tenure::Tenure;

/// What a release asks for beside itself. Dropped without an answer, it undoes what it may have left in the store.
pub(crate) struct Carry {
    claim: Arc<Claim>,
    until: BootInstant,
    /// Whom it is for; `None` once that one has the answer.
    next: Option<(Turn, u64)>,
    store: Arc<Store>,
    shared: Arc<Shared>,
}

impl Carry {
    /// `None` if nobody waits for whom the release of this hold could ask.
    pub(crate) fn begin(tenure: &Tenure) -> Option<Box<Self>> {
        if !tenure.carries() || !tenure.has_turn() {
            return None;
        }
        let Next { turn, ticket, claim, until } = tenure.store.queue.next(&tenure.hold.claim.key)?;
        let owner = Owner::fresh().ok()?;
        Some(Box::new(Self {
            claim: Arc::new(Claim { owner, origin: here(), ..(*claim).clone() }),
            until,
            next: Some((turn, ticket)),
            store: tenure.store.clone(),
            shared: tenure.shared.clone(),
        }))
    }

    pub(crate) fn asked(&self) -> (Arc<Claim>, BootInstant) {
        (self.claim.clone(), self.until)
    }

    /// Gives the caller its turn, and with it the store's answer; `None` if the store was not asked.
    pub(crate) fn deliver(mut self, answer: Option<Attempt>) {
        let (Some((turn, ticket)), Some(answer)) = (self.next.take(), answer) else { return };
        let baton = Baton::new(What::Answer(answer), &self.claim, &self.store, &self.shared);
        if let Err((turn, baton)) = turn.pass_to(ticket, baton) {
            baton.give_back(turn);
        }
    }
}

impl Drop for Carry {
    fn drop(&mut self) {
        if let Some((turn, _)) = self.next.take() {
            release::abandon_later(&self.shared, self.store.clone(), self.claim.clone(), Box::new(turn));
        }
    }
}
