//! The errors of a caller that did not get its lock. They name the holder if the store has reported it.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Note, Wake};
use dlock_store::Clock;

use crate::guard::scope;

/// For a caller that does not wait.
pub(super) fn busy(wake: &Wake, clock: &Clock) -> Error {
    let holder = wake.held_by.as_ref();
    contended(false, &in_words(holder, clock), holder).with_retry_after(wake.lease_left)
}

/// For a caller whose wait is over, with the holder that was met last.
pub(super) fn timed_out(wake: &Wake, left: Option<Duration>, clock: &Clock) -> Error {
    let holder = wake.held_by.as_ref();
    contended(true, &in_words(holder, clock), holder).with_retry_after(left)
}

/// For a caller that did not get the turn of this process, and so has not asked the store. The caller with the turn has
/// this note.
pub(super) fn behind(waits: bool, holder: Option<&Note>, clock: &Clock) -> Error {
    let neighbour = holder
        .map(|note| format!("; in this process it is held or asked for by {}", note.in_words(clock.wall_ms())))
        .unwrap_or_default();
    contended(waits, &neighbour, holder)
}

fn contended(waits: bool, by: &str, holder: Option<&Note>) -> Error {
    let error = if waits {
        let text = format!("the wait ran out while other owners held the lock{by}");
        Error::new(ErrorKind::WaitTimeout, and_held(text))
    } else {
        Error::new(ErrorKind::Busy, format!("another owner holds the lock{by}"))
    };
    error.with_holder_trace(holder.and_then(Note::trace))
}

/// If two callers wait for each other's locks, each error shows one half of the deadlock.
fn and_held(text: String) -> String {
    let held = scope::held_keys();
    if held.is_empty() { text } else { format!("{text}; the caller itself holds {}", held.join(", ")) }
}

pub(super) fn already_run() -> Error {
    Error::new(ErrorKind::AlreadyRun, "the run of this period has already started")
}

/// A caller, for the end of an error's text.
pub(super) fn in_words(note: Option<&Note>, clock: &Clock) -> String {
    note.map(|note| format!(": {}", note.in_words(clock.wall_ms()))).unwrap_or_default()
}
