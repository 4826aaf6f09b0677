//! The errors of a caller that did not get its lock. They name the holder if the store has told it.

use std::time::Duration;

use dlock_contract::{Clock, Error, ErrorKind, Wake};

use crate::guard::scope;

/// For a caller that does not wait. Without a wake the store was not asked, because other callers of this process are
/// before this one.
pub(super) fn busy(wake: Option<&Wake>, clock: &Clock) -> Error {
    let text = format!("another owner holds the lock{}", holder_in_words(wake, clock));
    Error::new(ErrorKind::Busy, text).with_retry_after(wake.and_then(|wake| wake.lease_left))
}

/// For a caller whose wait is over, with the holder that was met last.
pub(super) fn timed_out(wake: Option<&Wake>, left: Option<Duration>, clock: &Clock) -> Error {
    let mut text = format!("the wait ran out while other owners held the lock{}", holder_in_words(wake, clock));
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

fn holder_in_words(wake: Option<&Wake>, clock: &Clock) -> String {
    let note = wake.and_then(|wake| wake.held_by.as_ref());
    note.map(|note| format!(": {}", note.in_words(clock.wall_ms()))).unwrap_or_default()
}
