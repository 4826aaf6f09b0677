//! Which period's run was started under a key, and which one succeeded last. Outlives the locks.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::backend::{Claim, LastSuccess, RunEnd};
use crate::clock::{BootInstant, Clock};
use crate::key::LockKey;
use crate::options::OncePer;

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
    ended: bool,
    /// Beyond two periods it could stop nobody.
    kept_until: BootInstant,
}

impl Runs {
    /// Was a run of this period or a later one started, and may it not be run again once its lock is free?
    pub(super) fn is_over(&self, key: &LockKey, once: OncePer, clock: &Clock) -> bool {
        let start = self.0.get(key).and_then(|record| record.start.as_ref());
        start.is_some_and(|start| {
            let again = once.rerun && !start.ended;
            start.kept_until > clock.now() && start.boundary >= boundary(once, clock) && !again
        })
    }

    /// Notes a start.
    pub(super) fn start(&mut self, key: &LockKey, once: OncePer, clock: &Clock) {
        let record = self.0.entry(key.clone()).or_default();
        let kept_until = clock.now().after(once.period.saturating_mul(2));
        // A wall clock that was set back does not make the latest period one that is to come.
        let latest =
            record.start.as_ref().filter(|start| start.kept_until > clock.now()).map_or(0, |start| start.boundary);
        record.start = Some(Start { boundary: boundary(once, clock).max(latest), ended: false, kept_until });
    }

    pub(super) fn end(&mut self, claim: &Claim, end: RunEnd, began_ms: u64) {
        if claim.once_per.is_some()
            && let Some(start) = self.0.get_mut(&claim.key).and_then(|record| record.start.as_mut())
        {
            start.ended = true;
        }
        if let RunEnd::Succeeded { took } = end {
            let started = UNIX_EPOCH + Duration::from_millis(began_ms);
            let success = LastSuccess { started, took, note: claim.note.clone() };
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
