//! One attempt: the values of its statement, and its result.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Mode, Note, Result, Validity, Wake};

use super::fault::corrupt;
use super::time::{Stamp, Time};

/// The values of an attempt's statement.
pub(super) struct LockRequest<'a> {
    pub(super) claim: &'a Arc<Claim>,
    pub(super) now: Stamp,
    pub(super) boot: &'a str,
    /// The end of the lease that it would get.
    pub(super) until: i64,
}

/// The result of a granted statement.
pub(super) struct Granted {
    pub(super) token: i64,
    pub(super) slot: Option<i64>,
}

impl<'a> LockRequest<'a> {
    pub(super) fn new(claim: &'a Arc<Claim>, time: &'a Time) -> Result<Self> {
        let now = time.now()?;
        Ok(Self { claim, now, boot: time.boot(), until: now.stored.saturating_add(nanos(claim.ttl)) })
    }

    pub(super) fn acquired(&self, granted: Granted) -> Result<Attempt> {
        let token = u64::try_from(granted.token).map_err(|_| corrupt("a fencing token below zero"))?;
        let validity = Validity::new(self.now.at, self.claim.ttl);
        let hold = Hold::new(self.claim.clone(), token, validity)?;
        let slot = granted.slot.filter(|_| matches!(self.claim.mode, Mode::Permits(_)));
        Ok(Attempt::Acquired(match slot.map(u32::try_from) {
            None => hold,
            Some(Ok(slot)) => hold.with_slot(slot),
            Some(Err(_)) => return Err(corrupt("a permit whose number is too large")),
        }))
    }

    /// Another owner holds the lock for at most `left` nanoseconds. If this time is over, the caller asks at once.
    pub(super) fn contended(&self, left: i64, note: Option<&str>) -> Attempt {
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
        let wake = Wake::poll().ask_by(self.now.at.after(left)).lease_left(left);
        Attempt::Contended(wake.held_by(note.map(Note::from_stored)))
    }
}

pub(super) fn other_mode() -> Error {
    Error::new(ErrorKind::KeyConflict, "the key already holds a lock of another mode, or of another number of permits")
}

pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
