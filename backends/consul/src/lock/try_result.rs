//! How one try ends, and the checks that a try for a lock and one for a permit share.

use dlock_contract::{Error, ErrorKind, Note, Result};

use crate::api::kv::Entry;
use crate::lock::claim_state::ClaimSession;
use crate::lock::wait::Awaited;

/// The result of one try: a read of the lock, and a transaction if it seems free.
pub(crate) enum TryResult {
    /// The claim holds the lock.
    Won { token: u64, slot: Option<u32> },
    /// Another claim holds the lock.
    Held { awaited: Awaited, index: u64, by: Option<Note> },
    /// Nobody holds the lock, but Consul's lock-delay still runs.
    Delayed,
    /// Nobody holds the lock. It is left to a waiter of another process.
    GivesWay { index: u64 },
    /// The lock has changed since the read.
    Retry,
}

/// The error of a failed read. A read leaves nothing in the store. Without a session, earlier requests left nothing either.
pub(crate) fn unsent(error: Error, session: Option<&ClaimSession>) -> Error {
    if session.is_none() { error.never_sent() } else { error }
}

/// Refuses a key without these flags: it does not belong to a lock of this kind.
pub(crate) fn check_flags(entry: &Entry, flags: u64) -> Result<()> {
    if entry.flags == flags {
        return Ok(());
    }
    let text = "the Consul key is not a lock of this mode: its flags differ; rename the lock or delete the key";
    Err(Error::new(ErrorKind::KeyConflict, text).with_key(&entry.key))
}
