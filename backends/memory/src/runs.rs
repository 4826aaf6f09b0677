//! Which period's run was started under a key, and which one succeeded last. Outlives the locks.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::{BootInstant, Claim, Clock, LastSuccess, LockKey, OncePer, Owner, RunEnd};

/// One entry for each key of which a run was ever noted: nobody else can tell when its last success is of no use.
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
    /// Whose claim it is.
    owner: Owner,
    ended: bool,
    /// Beyond two periods it could stop nobody.
    kept_until: BootInstant,
}

impl Runs {
    /// Was a run of this period or a later one started, and may it not be run again once its lock is free? A claim that
    /// still asks has not begun its own.
    pub(super) fn is_over(&self, claim: &Claim, once: OncePer, clock: &Clock) -> bool {
        let start = self.0.get(&claim.key).and_then(|record| record.start.as_ref());
        start.is_some_and(|start| {
            let again = !start.ended && (once.rerun || start.owner == claim.owner);
            start.kept_until > clock.now() && start.boundary >= boundary(once, clock) && !again
        })
    }

    /// Notes a start.
    pub(super) fn start(&mut self, claim: &Claim, once: OncePer, clock: &Clock) {
        let record = self.0.entry(claim.key.clone()).or_default();
        let kept_until = clock.now().after(once.period.saturating_mul(2));
        // A wall clock that was set back does not make the latest period one that is to come.
        let latest =
            record.start.as_ref().filter(|start| start.kept_until > clock.now()).map_or(0, |start| start.boundary);
        let boundary = boundary(once, clock).max(latest);
        record.start = Some(Start { boundary, owner: claim.owner, ended: false, kept_until });
    }

    /// Nothing was run under this claim: its period is due again, all earlier ones are not. With `rerun` a start that has
    /// not ended may be run again as it is, and it may be another one's that died.
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

/// The boundary that is nearest.
fn boundary(once: OncePer, clock: &Clock) -> u128 {
    let (period, offset) = (once.period.as_nanos().max(1), once.offset.as_nanos());
    let middle = (u128::from(clock.wall_ms()) * 1_000_000 + period / 2).saturating_sub(offset);
    middle / period * period + offset
}
