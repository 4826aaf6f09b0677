//! The errors of a caller that did not get its lock. They name the holder if the store has told it.

use std::time::Duration;

use dlock_contract::{Clock, Error, ErrorKind, Note, Wake};

use crate::guard::scope;

/// For a caller that does not wait. Without a wake the store was not asked, because other callers of this process are
/// before this one: `neighbour` is the note of the first.
pub(super) fn busy(wake: Option<&Wake>, neighbour: Option<&Note>, clock: &Clock) -> Error {
    let note = wake.and_then(|wake| wake.held_by.as_ref()).or(neighbour);
    let text = format!("another owner holds the lock{}", in_words(note, clock));
    Error::new(ErrorKind::Busy, text).with_retry_after(wake.and_then(|wake| wake.lease_left))
}

/// For a caller whose wait is over, with the holder that was met last.
pub(super) fn timed_out(wake: Option<&Wake>, left: Option<Duration>, clock: &Clock) -> Error {
    let note = wake.and_then(|wake| wake.held_by.as_ref());
    let mut text = format!("the wait ran out while other owners held the lock{}", in_words(note, clock));
    // If two callers wait for each other's locks, each error shows one half of the deadlock.
    let held = scope::held_keys();
    if !held.is_empty() {
        text = format!("{text}; the caller itself holds {}", held.join(", "));
    }
    Error::new(ErrorKind::WaitTimeout, text).with_retry_after(left)
}

pub(super) fn already_run() -> Error {
    Error::new(ErrorKind::AlreadyRun, "the run of this period has already started")
}

/// A caller, for the end of an error's text.
pub(super) fn in_words(note: Option<&Note>, clock: &Clock) -> String {
    note.map(|note| format!(": {}", note.in_words(clock.wall_ms()))).unwrap_or_default()
}
