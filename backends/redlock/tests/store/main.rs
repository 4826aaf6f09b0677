//! Redlock against several real servers: nodes that are down, slow, forgetful, or that answer into the void.

mod clocks;
mod cluster;
mod contention;
mod first_contact;
mod let_in;
mod lost;
mod names;
mod opening;
mod outage;
mod restart;
mod strangers;
mod tokens;

/// The entry of other processes; see [`dlock_testkit::child`].
#[test]
fn child_main() {
    if let Some(role) = dlock_testkit::child::role() {
        opening::play(&role);
    }
}
