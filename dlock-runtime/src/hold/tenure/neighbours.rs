//! A hold and its neighbours, the other callers of this process that want the key: the turn, and passing the hold on.

use std::sync::{MutexGuard, PoisonError};

use dlock_contract::HoldId;

use super::{Neighbours, Tenure};
use crate::queue::{CohortState, Handover, LocalHold, NextWaiter, ServedRuntime, Turn};
use crate::site::id_of_passed;

impl Tenure {
    /// The release begins. Returns the waiter of this process for which it must ask.
    pub(crate) fn begin_turn_release(&self) -> Option<NextWaiter> {
        self.neighbours().turn.as_mut()?.begin_release()
    }

    /// Lets the next caller of this process ask.
    pub(crate) fn pass_turn(&self) {
        drop(self.take_turn());
    }

    /// Lets the next caller of this process join the store's wait queue while this hold goes on. If the release of this
    /// hold will ask for the next caller, only callers that must queue by themselves may join. False if the turn was lost,
    /// because its caller was not polled.
    pub(crate) fn share_turn(&self) -> bool {
        let Some(mut turn) = self.take_turn() else { return true };
        let release_asks = self.end_plan.is_none() && self.store.backend.exchange().is_some();
        let serves = release_asks.then_some(ServedRuntime(self.hold.claim.origin));
        let has_turn = turn.begin_hold(LocalHold { sole_thread: self.sole_thread, serves, is_releasing: false });
        self.neighbours().turn = Some(turn);
        has_turn
    }

    /// Its release begins, and may pass it on.
    pub(crate) fn note_turn_release(&self) {
        self.neighbours().turn.iter().for_each(Turn::note_release);
    }

    /// Keeps every other caller of this process from asking while this hold goes on. False if the turn was lost, because its
    /// caller was not polled.
    pub(crate) fn keep_turn(&self) -> bool {
        self.neighbours().turn.as_mut().is_none_or(|turn| turn.begin_sole_hold(self.sole_thread))
    }

    /// Takes the state that is needed to pass the hold on. `None` if the hold was lost, or if the turn was passed on
    /// before it.
    pub(crate) fn take_cohort(&self) -> Option<Box<CohortState>> {
        let mut neighbours = self.neighbours();
        let cohort = neighbours.cohort.take();
        cohort.filter(|_| self.is_released() && neighbours.turn.is_some())
    }

    /// The id of the hold as this process shows it. If a hold is passed on, each caller has an id of its own. So an
    /// earlier id never breaks the hold of a later caller.
    pub(crate) fn id(&self) -> HoldId {
        let was_passed_on = self.neighbours().cohort.as_ref().is_some_and(|cohort| cohort.block > 0);
        match self.hold.token.filter(|_| was_passed_on) {
            Some(token) => id_of_passed(&self.hold.claim.owner, token),
            None => HoldId::of(&self.hold.claim.owner),
        }
    }

    /// Keeps the hold from being passed on from now on. False if this caller does not have it any more.
    pub(crate) fn keep_here(&self) -> bool {
        match &mut self.neighbours().cohort {
            Some(cohort) => cohort.most = 0,
            None => return self.is_held(),
        }
        true
    }

    /// Gives the hold to the next caller of this process. False if no waiter can have it.
    pub(crate) fn pass_turn_with(&self, handover: Handover) -> bool {
        let Some(own) = self.take_turn() else { return false };
        let kept = own.pass(handover);
        let passed = kept.is_none();
        self.neighbours().turn = kept;
        passed
    }

    /// Takes the turn out of the mutex, because the caller wakes others with it and a waker may do anything. No other
    /// caller can put it back meanwhile: only the holder, or its release, does.
    fn take_turn(&self) -> Option<Turn> {
        self.neighbours().turn.take()
    }

    fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
