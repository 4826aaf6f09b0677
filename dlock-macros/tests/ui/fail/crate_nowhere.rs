//! A path that leads nowhere is one error for each attribute.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", crate = nowhere, guard = held)]
async fn wrong() -> Result<(), Error> {
    held.check()
}

#[distributed_lock(keys = ["a:<id>", "b"], crate = "crate::nobody")]
fn quoted(id: u64) -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "a", at_most = "1m", crate = std)]
async fn another_crate() {}

#[optimistic(crate = ::none::dlock)]
async fn again() -> Result<(), Error> {
    Ok(())
}

fn main() {}
