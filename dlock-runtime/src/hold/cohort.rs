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
use crate::queue::{Baton, Tenancy, What};

/// Passes the hold of a tenure that has just been released on to the next caller of this process. False if there is
/// none, or if the store shall have it back: then nothing has changed. The store is waited for so long at most.
pub(crate) async fn pass_on(tenure: &Arc<Tenure>, tenancy: Tenancy, bound: Duration) -> bool {
    match next(tenure, tenancy, bound).await {
        Some(baton) => tenure.pass_turn_with(baton),
        None => false,
    }
}

async fn next(tenure: &Arc<Tenure>, mut tenancy: Tenancy, bound: Duration) -> Option<Baton> {
    let Tenure { hold, store, shared, .. } = &**tenure;
    let members = store.queue.members(&hold.claim.key, hold.claim.ttl, tenancy.most);
    if members == 0 {
        return None;
    }
    let now = shared.clock.now();
    let mut validity = tenure.validity();
    let over = now.since(tenancy.alone_at) > tenancy.span;
    // Half of the ttl at least, so that the next one has time for its own first renewal.
    let is_short = |validity: Validity| validity.deadline().since(shared.clock.now()) < hold.claim.ttl / 2;
    // What a renewal under way finds out, the next one would not hear: so it is asked now.
    if tenancy.tokens.is_empty() || over || is_short(validity) || tenure.is_renewing() {
        validity = reserve(&mut tenancy, tenure, members, over, bound).await?;
        // The answer may have been a long time coming.
        if is_short(validity) {
            return None;
        }
    }
    let token = tenancy.tokens.next()?;
    let mut next = Hold::new(hold.claim.clone(), token, validity).ok()?;
    next.group = hold.group;
    next.session.clone_from(&hold.session);
    Some(Baton::new(What::Hold { hold: next, tenancy }, &hold.claim, store.clone(), shared.jobs.begin()))
}

/// Asks the store for further tokens; it prolongs the hold too. `None`: the lock is to be released.
async fn reserve(
    tenancy: &mut Tenancy,
    tenure: &Arc<Tenure>,
    members: u32,
    over: bool,
    bound: Duration,
) -> Option<Validity> {
    let now = tenure.shared.clock.now();
    let used_up = tenancy.tokens.is_empty();
    // Each token stands for one who waits, or whose like has waited: a counter that ran ahead of the clock could
    // not be set up again from it. Who has some left asks for what else it tells.
    let tokens = if used_up { members.max(tenancy.block.saturating_mul(2)).min(tenancy.most) } else { 1 };
    let first = tenancy.block == 0 && !over;
    let asked = Reservation { tokens, even_if_awaited: first };
    let request = tenure.store.ask(bound, tenure, move |backend, tenure| backend.reserve(&tenure.hold, asked));
    let answer = request.await;
    let (token, validity) = match answer {
        Ok(Reserved::Tokens { first, validity }) => (first, validity),
        Ok(Reserved::Awaited | Reserved::Lost) => return None,
        Err(_) => {
            // It may have been prolonged: so long the release is tried again.
            tenure.believe(Validity { from: now, granted: tenure.hold.claim.ttl });
            return None;
        }
    };
    tenure.believe(validity);
    if used_up {
        tenancy.tokens = token..token.checked_add(u64::from(tokens))?;
        tenancy.block = tokens;
    }
    if !first {
        tenancy.alone_at = now;
    }
    Some(validity)
}
