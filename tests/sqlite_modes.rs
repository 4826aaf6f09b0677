//! What the SQLite backend can do beyond one holder: kept locks, periods, permits, readers and writers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests stop at the first surprise too"
)]

mod holds;
#[path = "sqlite_modes/store.rs"]
mod store;

#[path = "sqlite_modes/crowds.rs"]
mod crowds;
#[path = "sqlite_modes/files.rs"]
mod files;
#[path = "sqlite_modes/kept.rs"]
mod kept;
#[path = "sqlite_modes/permits.rs"]
mod permits;
#[path = "sqlite_modes/readers.rs"]
mod readers;
#[path = "sqlite_modes/runs.rs"]
mod runs;

/// The entry of child processes; see the test kit.
#[test]
fn child_main() {
    match dlock_testkit::child::role().as_deref() {
        Some("permit holder") => permits::hold_in_child(),
        Some(other) => panic!("no role {other}"),
        None => {}
    }
}
