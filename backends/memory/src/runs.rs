//! The last run that was started under a key, and the last one that succeeded. These records outlive the locks.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::{BootInstant, Claim, LastSuccess, LockKey, OncePer, Owner, RunEnd};
use dlock_store::Clock;

/// One entry for each key that ever had a run. It stays, because only the user knows when its last success is useless.
#[derive(Debug, Default)]
pub(super) struct Runs(HashMap<LockKey, Record>);

#[derive(Debug, Default)]
struct Record {
    start: Option<Start>,
    success: Option<LastSuccess>,
}

#[derive(Debug)]
struct Start {
    /// In nanoseconds since 1970: it means the same to periods of every length.
    boundary: u128,
    /// The owner of the claim.
    owner: Owner,
    ended: bool,
    /// After two periods the entry can stop no run.
    kept_until: BootInstant,
}

impl Runs {
    /// Whether a run of this period or a later one was started and may not be run again once its lock is free. A claim
    /// that still asks has not begun its own run.
    pub(super) fn is_over(&self, claim: &Claim, once: OncePer, clock: &Clock) -> bool {
        let start = self.0.get(&claim.key).and_then(|record| record.start.as_ref());
        start.is_some_and(|start| {
            let may_start_again = !start.ended && (once.rerun || start.owner == claim.owner);
            start.kept_until > clock.now() && start.boundary >= boundary(once, clock) && !may_start_again
        })
    }

    /// Notes a start.
    pub(super) fn start(&mut self, claim: &Claim, once: OncePer, clock: &Clock) {
        let record = self.0.entry(claim.key.clone()).or_default();
        let kept_until = clock.now().after(once.period.saturating_mul(2));
        // If the wall clock was set back, the latest period must not lie in the future.
        let latest =
            record.start.as_ref().filter(|start| start.kept_until > clock.now()).map_or(0, |start| start.boundary);
        let boundary = boundary(once, clock).max(latest);
        record.start = Some(Start { boundary, owner: claim.owner, ended: false, kept_until });
    }

    /// Nothing has run under this claim: its period is due again, and no earlier period is. With `rerun` a start that
    /// has not ended may be run again anyway, and it may be the start of another owner that died.
    pub(super) fn give_back(&mut self, claim: &Claim) {
        if claim.once_per.as_deref().is_some_and(|once| !once.rerun)
            && let Some(start) = self.0.get_mut(&claim.key).and_then(|record| record.start.as_mut())
            && start.owner == claim.owner
            && !start.ended
        {
            start.boundary = start.boundary.saturating_sub(1);
            start.ended = true;
        }
    }

    pub(super) fn end(&mut self, claim: &Claim, end: RunEnd, began_ms: u64) {
        if claim.once_per.is_some()
            && let Some(start) = self.0.get_mut(&claim.key).and_then(|record| record.start.as_mut())
        {
            start.ended = true;
        }
        if let RunEnd::Succeeded { took } = end {
            let started = UNIX_EPOCH + Duration::from_millis(began_ms);
            let success = LastSuccess::new(started, took, claim.note.clone());
            self.0.entry(claim.key.clone()).or_default().success = Some(success);
        }
    }

    pub(super) fn last_success(&self, key: &LockKey) -> Option<LastSuccess> {
        self.0.get(key)?.success.clone()
    }
}

/// The nearest boundary.
fn boundary(once: OncePer, clock: &Clock) -> u128 {
    let (period, offset) = (once.period.as_nanos().max(1), once.offset.as_nanos());
    let rounded = (u128::from(clock.wall_ms()) * 1_000_000 + period / 2).saturating_sub(offset);
    rounded / period * period + offset
}
