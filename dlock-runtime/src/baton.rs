//! What goes from one caller of this process to the next along with the turn.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Hold};

use crate::closing::Job;
use crate::cohort::Tenancy;
use crate::local_queue::Turn;
use crate::release;
use crate::shared::Shared;
use crate::store::Store;

/// On its way to the next caller. Whoever takes it has what was asked for under its claim.
#[derive(Debug)]
pub(crate) struct Baton {
    pub(crate) what: What,
    pub(crate) claim: Arc<Claim>,
    store: Arc<Store>,
    shared: Arc<Shared>,
    /// In no table, and perhaps a hold: a shutdown waits for whoever takes it, or for its way back.
    job: Job,
}

#[derive(Debug)]
pub(crate) enum What {
    /// The hold, passed on without a trip to the store.
    Hold { hold: Hold, tenancy: Tenancy },
    /// The store's answer to what a release has asked for the next caller.
    Answer(Attempt),
}

impl Baton {
    pub(crate) fn new(what: What, claim: &Arc<Claim>, store: &Arc<Store>, shared: &Arc<Shared>) -> Self {
        Self { what, claim: claim.clone(), store: store.clone(), shared: shared.clone(), job: shared.jobs.begin() }
    }

    /// Undoes it at the store, on our thread: the next one is gone. The turn waits for that.
    pub(crate) fn give_back(self, turn: Turn) {
        // Its wake first: no news is awaited any more.
        drop(self.what);
        turn.leave();
        release::abandon_later(&self.shared, self.store, self.claim, Box::new(turn));
        drop(self.job);
    }
}
