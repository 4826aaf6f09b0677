//! Passes a hold on to the next caller of this process, without a request to the store.
//!
//! Exists because a busy key of one process would otherwise pay a round trip for each of its callers.
//!
//! In the store, the owner stays the caller that won the lock. Each further caller gets a fencing token of its own,
//! because a write of an earlier caller may still be under way. The tokens come from a block that the store has
//! reserved for the hold. If other processes wait, the hold is passed on within bounds only: the first block and the
//! span. The store says whether others wait when a further block is reserved.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Hold, Reservation, Reserved, Validity};
use dlock_store::engine::simulation::planted;

use crate::events::store_event::Operation;
use crate::hold::tenure::Tenure;
use crate::options::supported::refused;
use crate::queue::{CohortState, Content, Handover};

/// Passes the hold of a tenure that has just ended on to the next caller of this process. False if there is no such
/// caller, or if the lock must go back to the store; then nothing has changed. `bound` limits the wait for the store.
pub(crate) async fn pass_on(tenure: &Arc<Tenure>, cohort: CohortState, bound: Duration) -> bool {
    match next(tenure, cohort, bound).await {
        Some(handover) => tenure.pass_turn_with(handover),
        None => false,
    }
}

async fn next(tenure: &Arc<Tenure>, mut cohort: CohortState, bound: Duration) -> Option<Handover> {
    let Tenure { hold, lock, store, shared, .. } = &**tenure;
    let members = store.queue.members(lock, hold.claim.ttl, cohort.most);
    if members == 0 {
        return None;
    }
    let now = shared.clock.now();
    let mut validity = tenure.validity();
    let span_is_over = now.since(cohort.alone_at) > cohort.span;
    // At least half of the ttl must be left, so that the next caller has time for its first renewal.
    let is_too_short = |validity: Validity| validity.deadline().since(shared.clock.now()) < hold.claim.ttl / 2;
    // The next caller would not hear the answer to a renewal that is under way, so the store is asked now.
    if cohort.tokens.is_empty() || span_is_over || is_too_short(validity) || tenure.is_renewing() {
        validity = reserve(&mut cohort, tenure, members, span_is_over, bound).await?;
        // The answer may have taken long.
        if is_too_short(validity) {
            return None;
        }
    }
    let mut token = cohort.tokens.next()?;
    if planted("a hold that is passed on keeps its token") {
        token = hold.token?.get();
    }
    let mut next = Hold::new(hold.claim.clone(), token, validity).ok()?;
    next.session.clone_from(&hold.session);
    Some(Handover::new(Content::Hold { hold: next, cohort }, &hold.claim, store.clone(), shared.jobs.begin()))
}

/// Asks the store for further tokens. This prolongs the hold too. `None`: the lock must be released.
async fn reserve(
    cohort: &mut CohortState,
    tenure: &Arc<Tenure>,
    members: u32,
    span_is_over: bool,
    bound: Duration,
) -> Option<Validity> {
    let now = tenure.shared.clock.now();
    let used_up = cohort.tokens.is_empty();
    // Each token is for a caller that waits, or for one of the last block. A counter that ran ahead of the clock could
    // not be restored from the clock. If tokens are left, the request asks for one all the same, because it also
    // prolongs the hold and says whether others wait.
    let tokens = if used_up { members.max(cohort.block.saturating_mul(2)).min(cohort.most) } else { 1 };
    let is_first_block = cohort.block == 0 && !span_is_over;
    let reservation = Reservation::new(tokens).even_if_awaited(is_first_block);
    let request = tenure.store.ask(Operation::Reserve, bound, tenure, move |backend, tenure| match backend.tokens() {
        Some(tokens) => tokens.reserve(&tenure.hold, reservation),
        None => refused("cohort"),
    });
    let answer = request.await;
    let (token, validity) = match answer {
        Ok(Reserved::Tokens { first, validity }) => (first, validity),
        // Without an answer the store may have prolonged the hold. A release that fails is tried again for a ttl from
        // then on, which is longer.
        Ok(Reserved::Awaited | Reserved::Lost) | Err(_) => return None,
    };
    if used_up {
        cohort.tokens = token..token.checked_add(u64::from(tokens))?;
        cohort.block = tokens;
    }
    if !is_first_block {
        cohort.alone_at = now;
    }
    Some(validity)
}
