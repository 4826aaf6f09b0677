//! How a hold ends: once, and for one cause.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use dlock_contract::{BreakRecord, LossCause};
use dlock_store::engine::lock_unless_forked;
use dlock_store::engine::simulation::planted;
use dlock_store::line;

use super::{
    BODY_FAILED, BODY_SUCCEEDED, BODY_UNKNOWN, Ending, HELD, LOST_BROKEN, LOST_DEADLINE, LOST_MAX_HOLD, LOST_SHUTDOWN,
    LOST_STORE, RELEASED, Tenure,
};
use crate::events::lines::line_of;
use crate::hold::listeners::LossListeners;

impl Tenure {
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// Whether it was released, and not lost.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Ordering::Acquire) == RELEASED
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
        match self.state.load(Ordering::Acquire) {
            HELD => None,
            state => Some(cause(state)),
        }
    }

    /// Held → released. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        self.change(RELEASED)
    }

    /// Held → lost. False if it had ended before.
    pub(crate) fn mark_lost(&self, cause: LossCause) -> bool {
        let lost = self.change(match cause {
            LossCause::Deadline => LOST_DEADLINE,
            LossCause::Broken => LOST_BROKEN,
            LossCause::MaxHold => LOST_MAX_HOLD,
            LossCause::Shutdown => LOST_SHUTDOWN,
            LossCause::Released | LossCause::Unconfirmed => RELEASED,
            // The store, or a cause that a later contract adds. Both are losses.
            _ => LOST_STORE,
        });
        if lost && !planted("a loss wakes nobody") {
            let listeners = self.listeners().map(|mut listeners| std::mem::take(&mut *listeners));
            listeners.unwrap_or_default().wake();
        }
        lost
    }

    fn change(&self, to: u8) -> bool {
        self.state.compare_exchange(HELD, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// None in a child after `fork`, if the parent had locked them just then.
    pub(crate) fn listeners(&self) -> Option<MutexGuard<'_, LossListeners>> {
        lock_unless_forked(&self.waiting_for_loss)
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
        line(move || {
            line_of!(warn, label, record = record_text, "an operator has broken this hold");
        });
    }

    /// Why the store does not know the hold any more, as far as it has reported it.
    pub(crate) fn told_cause(&self) -> LossCause {
        if self.broken.get().is_some() { LossCause::Broken } else { LossCause::Store }
    }
}

const fn cause(state: u8) -> LossCause {
    match state {
        RELEASED => LossCause::Released,
        LOST_STORE => LossCause::Store,
        LOST_BROKEN => LossCause::Broken,
        LOST_MAX_HOLD => LossCause::MaxHold,
        LOST_SHUTDOWN => LossCause::Shutdown,
        _ => LossCause::Deadline,
    }
}
