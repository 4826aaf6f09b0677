//! The end of a hold whose lock is not simply freed: the store keeps the key for `min_hold`, or records the run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use dlock_contract::{BootInstant, Ending, RunEnd};

use super::{Beginning, Tenure};

#[derive(Debug)]
pub(super) struct AtEnd {
    /// Did the caller get the lock? A lock that was won in vain is simply freed.
    handed_out: AtomicBool,
    /// `min_hold`, from when the grant was heard of: the store then keeps the key rather too long than too short.
    kept_until: Option<BootInstant>,
    /// How the run went, if the store keeps a record of it.
    run: Option<OnceLock<RunEnd>>,
}

impl AtEnd {
    /// `None` if the store only has to free the lock.
    pub(super) fn new(start: &Beginning) -> Option<Box<Self>> {
        (start.min_hold.is_some() || start.recorded).then(|| {
            let kept_until = start.min_hold.map(|min_hold| start.shared.clock.now().after(min_hold));
            let run = start.recorded.then(OnceLock::new);
            Box::new(Self { handed_out: AtomicBool::new(false), kept_until, run })
        })
    }
}

impl Tenure {
    /// The caller gets the lock. From here on its end keeps the key, or records the run, if that was asked for.
    pub(crate) fn handed_out(&self) {
        if let Some(at_end) = &self.at_end {
            at_end.handed_out.store(true, Ordering::Release);
        }
    }

    /// Notes how the body ended, if that is to be recorded.
    pub(crate) fn ran(&self, succeeded: Option<bool>) {
        let Some(run) = self.at_end.as_ref().and_then(|at_end| at_end.run.as_ref()) else { return };
        let took = self.shared.clock.now().since(self.since);
        let end = if succeeded == Some(true) { RunEnd::Succeeded { took } } else { RunEnd::Failed };
        // Only the first end counts.
        let _ = run.set(end);
    }

    /// How the store is to end the hold now, if not by simply freeing it.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let AtEnd { handed_out, kept_until, run } = &**self.at_end.as_ref()?;
        if !handed_out.load(Ordering::Acquire) {
            return None;
        }
        let now = self.shared.clock.now();
        let keep = kept_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero());
        let run = run.as_ref().and_then(|run| run.get().copied());
        (keep.is_some() || run.is_some()).then_some(Ending { keep, run })
    }
}
