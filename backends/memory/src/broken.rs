//! The records of broken holds: who broke each of them, and why.

use std::collections::HashMap;
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, HoldId};

/// The shortest time for which a record is kept.
const SHORTEST_KEEP: Duration = Duration::from_secs(60);

/// The records of broken holds, and until when each is kept.
#[derive(Debug, Default)]
pub(super) struct Broken(HashMap<HoldId, (BreakRecord, BootInstant)>);

impl Broken {
    /// Keeps the record of a hold that would have lasted until `end`.
    pub(super) fn keep(&mut self, id: HoldId, record: &BreakRecord, end: BootInstant, now: BootInstant) {
        self.0.retain(|_, (_, until)| *until > now);
        self.0.insert(id, (record.clone(), end.max(now.after(SHORTEST_KEEP))));
    }

    pub(super) fn record_of(&self, id: &HoldId) -> Option<BreakRecord> {
        self.0.get(id).map(|(record, _)| record.clone())
    }
}
