//! Every option of the attribute, on and off, against the running stores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod stores;

#[test]
fn child_main() {
    fair::child();
}

mod attempts;
mod bodies;
mod busy;
mod cohort;
mod constants;
mod fair;
mod keys;
mod losses;
mod modes;
mod names;
mod nested;
mod outages;
mod outcome;
mod periods;
mod plain;
mod refused;
mod renewals;
mod sync;
mod waits;
