//! The SQLite backend on real files: one holder, and kept locks, periods, permits, readers and writers.

mod store;

mod crowds;
mod cycle;
#[cfg(target_os = "linux")]
mod disks;
mod dropped;
mod fenced;
mod file;
mod files;
mod first_contact;
#[cfg(target_os = "linux")]
mod index;
mod kept;
mod permits;
mod readers;
mod runs;
mod tokens;
#[cfg(target_os = "linux")]
mod turns;
#[cfg(target_os = "linux")]
mod users;
#[cfg(target_os = "linux")]
mod wake_limits;
#[cfg(target_os = "linux")]
mod wakes;

/// The entry of child processes; see the test kit.
#[test]
fn child_main() {
    match dlock_testkit::child::role().as_deref() {
        Some("permit holder") => permits::hold_in_child(),
        #[cfg(target_os = "linux")]
        Some("disks") => disks::fill_the_disk(),
        #[cfg(target_os = "linux")]
        Some("silent disk") => disks::wait_beside_a_silent_disk(),
        #[cfg(target_os = "linux")]
        Some("commits") => disks::commit_for_ever(),
        #[cfg(target_os = "linux")]
        Some("new index") => index::hold_in_child(),
        #[cfg(target_os = "linux")]
        Some("wakes") => wakes::release_in_child(),
        #[cfg(target_os = "linux")]
        Some("wakes not") => wakes::poll_in_child(),
        #[cfg(target_os = "linux")]
        Some("one watch") => wake_limits::wait_with_one_watch(),
        #[cfg(target_os = "linux")]
        Some("another user") => wake_limits::wait_as_another_user(),
        Some(other) => panic!("no role {other}"),
        None => {}
    }
}
