//! One attempt: what is asked, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Mode, Note, Result, Validity, Wake};
use sqlx::sqlite::SqliteConnection;

use super::time::{Stamp, Time};
use super::{exclusive, runs, schema, shares};

/// What is asked, and when.
pub(super) struct Asked<'a> {
    pub(super) claim: &'a Arc<Claim>,
    pub(super) now: Stamp,
    pub(super) boot: &'a str,
    /// The end of the lease that it would get.
    pub(super) until: i64,
}

/// What a grant's statement has given.
pub(super) struct Granted {
    pub(super) token: i64,
    pub(super) slot: Option<i64>,
}

/// Asks once, in one statement: by the mode of the claim.
pub(super) async fn ask(conn: &mut SqliteConnection, asked: &Asked<'_>, time: &Time) -> sqlx::Result<Option<Granted>> {
    match (asked.claim.mode, asked.claim.once_per.as_deref()) {
        (Mode::Exclusive, None) => exclusive::ask(conn, asked).await,
        (Mode::Exclusive, Some(once)) => runs::ask(conn, asked, time, *once).await,
        _ => shares::ask(conn, asked).await,
    }
}

impl<'a> Asked<'a> {
    pub(super) fn new(claim: &'a Arc<Claim>, time: &'a Time) -> Result<Self> {
        let now = time.now()?;
        Ok(Self { claim, now, boot: time.boot(), until: now.stored.saturating_add(nanos(claim.ttl)) })
    }

    pub(super) fn acquired(&self, granted: Granted) -> Result<Attempt> {
        let token = u64::try_from(granted.token).map_err(|_| schema::corrupt("a fencing token below zero"))?;
        let validity = Validity { from: self.now.at, granted: self.claim.ttl };
        let hold = Hold::new(self.claim.clone(), token, validity)?;
        let slot = granted.slot.filter(|_| matches!(self.claim.mode, Mode::Permits(_)));
        Ok(Attempt::Acquired(match slot.map(u32::try_from) {
            None => hold,
            Some(Ok(slot)) => hold.with_slot(slot),
            Some(Err(_)) => return Err(schema::corrupt("a permit beyond all numbers")),
        }))
    }

    /// Somebody else has it, for so many nanoseconds at most; ask at once if that is over.
    pub(super) fn contended(&self, left: i64, note: Option<&str>) -> Attempt {
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
        let wake = Wake::poll().ask_by(self.now.at.after(left)).lease_left(left);
        Attempt::Contended(wake.held_by(note.map(Note::from_stored)))
    }
}

pub(super) fn other_kind() -> Error {
    Error::new(ErrorKind::KeyConflict, "the key is in use by a lock of another mode, or of another number of permits")
}

pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
