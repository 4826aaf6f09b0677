//! The plan for the end of a hold if the store must do more than free the lock: keep the key for `min_hold`, or record
//! the run.

use std::sync::OnceLock;
use std::time::Duration;

use dlock_contract::{BootInstant, RunEnd};
use dlock_store::engine::simulation::planted;

/// The end of a hold for which the store must do more than free the lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Keep the key for this time, and record the run if there is one.
    Kept(Duration, Option<RunEnd>),
    /// Free the lock, and record the run.
    Recorded(RunEnd),
}

#[derive(Debug)]
pub(super) struct EndPlan {
    /// The end of `min_hold`, counted from the time when the grant was received. So the store keeps the key rather too
    /// long than too short.
    kept_until: Option<BootInstant>,
    /// How the run went, if the store keeps a record of it.
    run: Option<OnceLock<RunEnd>>,
}

impl EndPlan {
    /// `None` if the store only has to free the lock.
    pub(super) fn new(kept_until: Option<BootInstant>, recorded: bool) -> Option<Box<Self>> {
        (kept_until.is_some() || recorded).then(|| {
            let run = recorded.then(OnceLock::new);
            Box::new(Self { kept_until, run })
        })
    }

    /// Only the first end counts.
    pub(super) fn note_run(&self, succeeded: bool, took: impl FnOnce() -> Duration) {
        let Some(run) = &self.run else { return };
        let end = if succeeded { RunEnd::Succeeded { took: took() } } else { RunEnd::Failed };
        let _ = run.set(end);
    }

    pub(super) fn has_succeeded(&self) -> bool {
        let run = self.run.as_ref().and_then(OnceLock::get);
        matches!(run, Some(RunEnd::Succeeded { .. }))
    }

    pub(super) fn ending(&self, now: BootInstant) -> Option<Ending> {
        let keep = self.kept_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero());
        let keep = keep.filter(|_| !planted("min_hold ends with the body"));
        let run = self.run.as_ref().and_then(|run| run.get().copied());
        keep.map(|time| Ending::Kept(time, run)).or(run.map(Ending::Recorded))
    }
}
