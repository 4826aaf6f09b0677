//! Passing a hold on inside of one process, without a trip to the store.
//!
//! In the store the owner stays the caller who won the lock. Each further one has a fencing token of its own, out of a
//! block that the store has reserved for the hold: a write of an earlier one may still be under way. While others wait
//! for the lock, it is passed on within bounds only (the first block, and the span); whether they do is asked with each
//! further block.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Hold, Reservation, Reserved, Validity};

use crate::hold::tenure::Tenure;
use crate::queue::{CohortState, Content, Handover};

/// Passes the hold of a tenure that has just been released on to the next caller of this process. False if there is
/// none, or if the store shall have it back: then nothing has changed. The store is waited for so long at most.
pub(crate) async fn pass_on(tenure: &Arc<Tenure>, cohort: CohortState, bound: Duration) -> bool {
    match next(tenure, cohort, bound).await {
        Some(handover) => tenure.pass_turn_with(handover),
        None => false,
    }
}

async fn next(tenure: &Arc<Tenure>, mut cohort: CohortState, bound: Duration) -> Option<Handover> {
    let Tenure { hold, store, shared, .. } = &**tenure;
    let members = store.queue.members(&hold.claim.key, hold.claim.ttl, cohort.most);
    if members == 0 {
        return None;
    }
    let now = shared.clock.now();
    let mut validity = tenure.validity();
    let over = now.since(cohort.alone_at) > cohort.span;
    // Half of the ttl at least, so that the next one has time for its own first renewal.
    let is_short = |validity: Validity| validity.deadline().since(shared.clock.now()) < hold.claim.ttl / 2;
    // What a renewal under way finds out, the next one would not hear: so it is asked now.
    if cohort.tokens.is_empty() || over || is_short(validity) || tenure.is_renewing() {
        validity = reserve(&mut cohort, tenure, members, over, bound).await?;
        // The answer may have been a long time coming.
        if is_short(validity) {
            return None;
        }
    }
    let token = cohort.tokens.next()?;
    let mut next = Hold::new(hold.claim.clone(), token, validity).ok()?;
    next.group = hold.group;
    next.session.clone_from(&hold.session);
    Some(Handover::new(Content::Hold { hold: next, cohort }, &hold.claim, store.clone(), shared.jobs.begin()))
}

/// Asks the store for further tokens; it prolongs the hold too. `None`: the lock is to be released.
async fn reserve(
    cohort: &mut CohortState,
    tenure: &Arc<Tenure>,
    members: u32,
    over: bool,
    bound: Duration,
) -> Option<Validity> {
    let now = tenure.shared.clock.now();
    let used_up = cohort.tokens.is_empty();
    // Each token stands for one who waits, or whose like has waited: a counter that ran ahead of the clock could
    // not be set up again from it. Who has some left asks for what else it tells.
    let tokens = if used_up { members.max(cohort.block.saturating_mul(2)).min(cohort.most) } else { 1 };
    let first = cohort.block == 0 && !over;
    let asked = Reservation { tokens, even_if_awaited: first };
    let request = tenure.store.ask(bound, tenure, move |backend, tenure| backend.reserve(&tenure.hold, asked));
    let answer = request.await;
    let (token, validity) = match answer {
        Ok(Reserved::Tokens { first, validity }) => (first, validity),
        Ok(Reserved::Awaited | Reserved::Lost) => return None,
        Err(_) => {
            // It may have been prolonged: so long the release is tried again.
            tenure.prolong(Validity { from: now, granted: tenure.hold.claim.ttl });
            return None;
        }
    };
    tenure.prolong(validity);
    if used_up {
        cohort.tokens = token..token.checked_add(u64::from(tokens))?;
        cohort.block = tokens;
    }
    if !first {
        cohort.alone_at = now;
    }
    Some(validity)
}
