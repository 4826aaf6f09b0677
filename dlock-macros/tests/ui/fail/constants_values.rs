//! The value of a constant is checked while the program is compiled.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Error, distributed_lock, optimistic};

const NONE: u32 = 0;
const AGES: Duration = Duration::from_secs(u64::MAX);

#[distributed_lock(key = "a", attempts = NONE)]
async fn no_attempt() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = permits(NONE))]
fn no_permit() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = AGES)]
fn too_long() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", min_hold = Duration::ZERO)]
fn nothing() -> Result<(), Error> {
    Ok(())
}

#[optimistic(retries = NONE)]
fn no_retry() -> Result<(), Error> {
    Ok(())
}

fn main() {}
