//! How a hold ends: once, and for one cause.

use std::sync::atomic::Ordering;

use dlock_contract::{BreakRecord, LossCause};
use dlock_store::engine::simulation::planted;

use super::{BODY_FAILED, BODY_SUCCEEDED, BODY_UNKNOWN, Ending, Tenure};
use crate::events::lines;

impl Tenure {
    pub(crate) fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// Whether it was released, and not lost.
    pub(crate) fn is_released(&self) -> bool {
        self.state.is_released()
    }

    /// Its release begins. A shutdown that sees this also sees the job of the release.
    pub(crate) fn note_release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// Whether its release has begun. A lost hold whose body still runs is not being released.
    pub(crate) fn is_being_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// How it has ended; `None` while it is held.
    pub(crate) fn ended(&self) -> Option<LossCause> {
        self.state.ended()
    }

    /// Held → released. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        self.state.end()
    }

    /// Held → lost. False if it had ended before.
    pub(crate) fn mark_lost(&self, cause: LossCause) -> bool {
        self.state.mark_lost(cause)
    }

    /// Whether its call has the lock. A call for several keys gets all of its locks at once.
    pub(crate) fn is_handed_out(&self) -> bool {
        self.is_handed_out.load(Ordering::Acquire)
    }

    /// The caller gets the lock. From here on its end keeps the key, or records the run, if that was asked for.
    pub(crate) fn note_handed_out(&self) {
        self.is_handed_out.store(true, Ordering::Release);
    }

    /// Notes how the body ended, if that is to be recorded.
    pub(crate) fn note_run(&self, succeeded: bool) {
        if let Some(end_plan) = &self.end_plan {
            end_plan.note_run(succeeded, || self.shared.clock.now().since(self.since));
        }
    }

    /// Whether a run that the store records has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.is_handed_out() && self.end_plan.as_ref().is_some_and(|end_plan| end_plan.has_succeeded())
    }

    /// Notes whether the body has succeeded, for a store that makes its work final, and not for a record.
    pub(crate) fn note_end(&self, succeeded: bool) {
        let end = if succeeded { BODY_SUCCEEDED } else { BODY_FAILED };
        // The first word counts.
        let _ = self.body.compare_exchange(BODY_UNKNOWN, end, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Its work is not made final, however the body ended.
    pub(crate) fn note_undone(&self) {
        self.body.store(BODY_FAILED, Ordering::Release);
    }

    /// Whether the body has succeeded; `None` while nobody knows.
    pub(crate) fn succeeded(&self) -> Option<bool> {
        match self.body.load(Ordering::Acquire) {
            BODY_UNKNOWN => None,
            end => Some(end == BODY_SUCCEEDED),
        }
    }

    /// How the store is to end the hold now, if not by simply freeing it.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let end_plan = self.end_plan.as_ref()?;
        let is_planned = self.is_handed_out() || planted("a hold that nobody got keeps its key");
        if is_planned { end_plan.ending(self.shared.clock.now()) } else { None }
    }

    /// Notes the record of the operator who broke the hold; kept for all that ask for the cause.
    pub(crate) fn note_break(&self, record: BreakRecord) {
        let record_text = record.as_str().to_owned();
        // The first answer stays: one hold is broken once.
        if self.broken.set(Box::new(record)).is_err() {
            return;
        }
        let label = self.label.clone();
        let write = move |told| lines::write_broken(&label, &record_text, told);
        self.shared.events.in_turn(&self.store.name, lines::BROKEN, write);
    }

    /// Why the store does not know the hold any more, as far as it has reported it.
    pub(crate) fn told_cause(&self) -> LossCause {
        if self.broken.get().is_some() { LossCause::Broken } else { LossCause::Store }
    }
}
