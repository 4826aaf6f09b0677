//! Ends an acquisition of unknown outcome on our thread, so that nothing of it is left in the store.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Claim, Result};
use dlock_store::is_forked;
use futures::future::BoxFuture;

use crate::events::store_event::Operation;
use crate::hold::cleanup::{Duty, Undo};
use crate::hold::store::{Store, request_bound};
use crate::queue::Abandon;

/// Abandons a claim on our thread. `turn` is dropped after the first try at the latest.
pub(crate) fn abandon_later(store: &Arc<Store>, claim: Arc<Claim>, turn: Box<dyn Send>) {
    let Some(turn) = not_of_the_parent(turn) else { return };
    let job = store.jobs.begin();
    let now = store.clock.now();
    let lease_ends = now.after(claim.ttl);
    let undo = Abandoned { store: store.clone(), claim, turn: Some(turn) };
    let expires_alone = store.backend.profile().expires_alone;
    store.cleanups.add(Duty::new(Box::new(undo), lease_ends, expires_alone, job), now);
}

/// The longest wait of a caller for an abandon. Our thread goes on with one that takes longer.
pub(crate) const LONGEST_ABANDON: Duration = Duration::from_secs(1);

/// Abandons a claim now, within the time of a request, but at most in this time.
pub(crate) fn abandon(store: &Store, claim: &Arc<Claim>, longest: Duration) -> impl Future<Output = Result<()>> {
    let bound = request_bound(claim.ttl).min(longest);
    store.ask(Operation::Abandon, bound, claim, |backend, claim| backend.abandon(claim))
}

/// `None` in a child after `fork`, which has only a copy of the parent's value. The copy is not dropped: that would
/// close the parent's connections, or wait for a mutex that nobody unlocks any more.
pub(crate) fn not_of_the_parent<T>(value: T) -> Option<T> {
    if !is_forked() {
        return Some(value);
    }
    std::mem::forget(value);
    None
}

impl Abandon for Store {
    fn abandon_later(self: Arc<Self>, claim: Arc<Claim>, turn: Box<dyn Send>) {
        abandon_later(&self, claim, turn);
    }
}

/// An acquisition of unknown outcome, and the local turn. The turn waits for the first answer: a neighbour that asked
/// before would meet our own leftovers. It does not wait for longer, so that neighbours hear that the store is down.
struct Abandoned {
    store: Arc<Store>,
    claim: Arc<Claim>,
    turn: Option<Box<dyn Send>>,
}

impl Undo for Abandoned {
    fn attempt(&mut self) -> BoxFuture<'_, Result<()>> {
        let longest = if self.turn.is_some() { LONGEST_ABANDON } else { Duration::MAX };
        // Only the claim and the store are borrowed, because `turn` cannot be shared between threads.
        Box::pin(abandon(&self.store, &self.claim, longest))
    }

    fn let_neighbours_go(&mut self) {
        self.turn = None;
    }
}
