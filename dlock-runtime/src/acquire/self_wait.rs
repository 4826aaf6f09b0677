//! Refuses a wait that only its own caller could end.

use std::sync::Arc;

use dlock_contract::{Error, ErrorKind, HoldId, Result};

use super::acquisition::Acquisition;
use crate::events::store_event::Operation;
use crate::guard::scope;
use crate::hold::tenure::Tenure;

impl Acquisition {
    /// Refuses to park if the lock can only come from a task of the parked thread.
    pub(super) fn check_parking(&self) -> Result<()> {
        let Some(parked) = &self.parked else { return Ok(()) };
        let Some(sole_thread) = parked.sole_thread else { return Ok(()) };
        let blocks = |tenure: &Arc<Tenure>| {
            tenure.sole_thread == Some(sole_thread) && tenure.store.is_same(&self.store) && tenure.lock == self.lock
        };
        if self.store.queue.has(&self.lock, sole_thread) || self.shared.renewals.holds().iter().any(blocks) {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "another task of this thread holds the lock or waits for it, and it cannot go on while this call blocks the \
                 thread (a current-thread runtime or a `LocalSet`); make the function async, or call it in `spawn_blocking`",
            ));
        }
        Ok(())
    }

    /// Refuses to wait for the hold of an enclosing call that has this store under another name, or this lock by a pair of
    /// stores. The engine cannot see that, but the store knows the hold.
    ///
    /// `was_refused`: the store has refused this call. Before it was asked, it may share the lock with the enclosing call.
    pub(super) async fn check_other_names(&mut self, was_refused: bool) -> Result<()> {
        let may_share = |held: &Arc<Tenure>| {
            let (outer, own) = (held.hold.claim.mode, self.claim.mode);
            !was_refused && outer.is_shared() && own.is_shared()
        };
        let is_like = |held: &Arc<Tenure>| {
            held.hold.claim.key == self.claim.key && !held.store.is_same(&self.store) && !may_share(held)
        };
        let alike: Vec<_> = scope::chain().filter(is_like).collect();
        if alike.is_empty() {
            return Ok(());
        }
        let look = self
            .store
            .ask(Operation::Inspect, self.attempt_bound(), &self.claim, |backend, claim| backend.look(&claim.key));
        // Without an answer the wait goes on.
        let Ok(state) = look.await else { return Ok(()) };
        let has_it = |held: &&Arc<Tenure>| {
            state.holders.iter().any(|holder| holder.id == Some(HoldId::of(&held.hold.claim.owner)))
        };
        let Some(outer) = alike.iter().find(has_it) else { return Ok(()) };
        let text = format!(
            "an enclosing call, `{}`, holds this lock by the backend {:?}, which is the same store; waiting for it would deadlock",
            outer.label.place(),
            &*outer.store.name
        );
        Err(Error::new(ErrorKind::WouldDeadlock, text))
    }
}
