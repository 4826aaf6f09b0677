//! The ends of holds that do more than free the lock: a key that is kept, and the runs of periods.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{HoldOf, Holder, KEPT, Lock, OwnerBytes, Store, after};
use crate::plan::Lie;

/// The last run of a period that was started.
#[derive(Clone)]
pub(super) struct Start {
    /// The number of the next boundary: one that is given back is less.
    boundary: u64,
    owner: OwnerBytes,
    has_ended: bool,
}

impl Lock {
    /// Whether the run of this period or a later one was started, and may not be started again. A claim that still asks has not begun
    /// its own run.
    pub(super) fn has_run(&self, lie: Lie, hold: HoldOf, now: u64) -> bool {
        let Some(((once, start), false)) = hold.once_per.zip(self.start.as_ref()).zip(Some(lie == Lie::StartsAgain))
        else {
            return false;
        };
        let may_start_again = !start.has_ended && (once.rerun || start.owner == hold.owner);
        start.boundary > once.of(now) && !may_start_again
    }

    /// Notes a start.
    pub(super) fn starts(&mut self, hold: HoldOf, now: u64) {
        if let Some(once) = hold.once_per {
            let latest = self.start.as_ref().map_or(0, |start| start.boundary);
            self.start = Some(Start { boundary: latest.max(once.of(now) + 1), owner: hold.owner, has_ended: false });
        }
    }

    /// Nothing has run under this claim: its period is due again, and no earlier period is.
    pub(super) fn gives_start_back(&mut self, hold: HoldOf) {
        if hold.once_per.is_some_and(|once| !once.rerun)
            && let Some(start) = self.start.as_mut().filter(|start| start.owner == hold.owner && !start.has_ended)
        {
            (start.boundary, start.has_ended) = (start.boundary.saturating_sub(1), true);
        }
    }
}

impl Store {
    /// Frees the lock if it is this owner's, keeps it for a time, and notes the end of its run. Returns whether it was.
    pub(crate) fn end(
        &mut self,
        hold: HoldOf,
        keep: Option<Duration>,
        ends_run: bool,
        sent: u64,
        now: u64,
    ) -> (bool, Vec<oneshot::Sender<()>>) {
        if let (true, Some(start)) = (ends_run && self.is_of(hold, now), &mut self.lock(hold.key, now).0.start)
            && start.owner == hold.owner
        {
            start.has_ended = true;
        }
        let (is_owner, listeners) = self.release(hold, sent, now);
        if let (true, Some(time)) = (is_owner, keep) {
            let expires = after(now, if self.lie == Lie::KeepsShort { time / 2 } else { time });
            let HoldOf { key, token, mode, call, .. } = hold;
            let kept = Holder { owner: KEPT, token, mode, call, slot: 0, expires, session: None };
            self.lock(key, now).0.holders.push(kept);
        }
        (is_owner, listeners)
    }
}
