//! The handover that goes from one caller of this process to the next with the turn: a hold, or the store's answer.
//!
//! Exists because a lock that goes to another caller of this process would otherwise cost two requests, one after the other:
//! a release and an acquisition. With a handover it costs one request, or none within a cohort (ADR 0006).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Hold};

use crate::events::shutdown::Job;
use crate::options::Cohort;
use crate::queue::cohort_holds::ListedHold;

/// A handover on its way to the next caller. The caller that takes it goes on with its claim.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) content: Content,
    pub(crate) claim: Arc<Claim>,
    store: Arc<dyn Abandon>,
    /// A handover is in no table, and perhaps a hold. A shutdown waits for the caller that takes it, or for its way
    /// back.
    job: Job,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// The hold, passed on without a trip to the store.
    Hold { hold: Hold, cohort: CohortState },
    /// The store's answer to a release that asked for the next caller.
    Answer(Attempt),
}

/// The part of a store that a handover needs if no caller takes it. The queue does not know stores.
pub(crate) trait Abandon: fmt::Debug + Send + Sync {
    /// Abandons a claim on our thread. `turn` is dropped after the first try at the latest.
    fn abandon_later(self: Arc<Self>, claim: Arc<Claim>, turn: Box<dyn Send>);
}

impl Handover {
    pub(crate) fn new(content: Content, claim: &Arc<Claim>, store: Arc<dyn Abandon>, job: Job) -> Self {
        Self { content, claim: claim.clone(), store, job }
    }

    /// Undoes it in the store, on our thread, because the next caller is gone. The turn waits for that.
    pub(crate) fn give_back(self, turn: Box<dyn Send>) {
        // The wake is dropped first, because nobody waits for its notification.
        drop(self.content);
        self.store.abandon_later(self.claim, turn);
        drop(self.job);
    }
}

/// The bounds within which a hold is passed on, and the tokens that are reserved for its next callers.
#[derive(Debug)]
pub(crate) struct CohortState {
    /// The most tokens of one block.
    pub(crate) most: u32,
    pub(crate) span: Duration,
    /// Reserved, and not given to any caller yet.
    pub(crate) tokens: Range<u64>,
    /// The number of tokens of the last block; zero before the first.
    pub(crate) block: u32,
    /// Since this time other processes may wait, as far as we know.
    pub(crate) alone_at: BootInstant,
    /// The hold in the list of those that are passed on; `None` before the grant.
    pub(crate) listed: Option<Arc<ListedHold>>,
}

/// The most tokens of one block, whatever `passes` is. A lock that is given back leaves the rest of its block unused.
const LARGEST_TOKEN_BLOCK: u32 = 1024;

impl CohortState {
    pub(crate) fn new(bounds: Cohort, ttl: Duration) -> Self {
        let span = bounds.span.unwrap_or(ttl / 10);
        let most = bounds.passes.min(LARGEST_TOKEN_BLOCK);
        Self { most, span, tokens: 0..0, block: 0, alone_at: BootInstant::from_nanos(0), listed: None }
    }

    /// These bounds for another hold.
    pub(crate) fn for_next_hold(self) -> Self {
        Self { tokens: 0..0, block: 0, listed: None, ..self }
    }

    /// The store has granted the lock.
    pub(crate) fn begin(&mut self, since: BootInstant, listed: Arc<ListedHold>) {
        self.alone_at = since;
        self.listed = Some(listed);
    }
}
