//! Durations that no lock can have.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", ttl = "0s", wait = "0ms", renew = "0h")]
async fn zero() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "99999999999d", wait = "36501d", renew = "99999999999999999999999s")]
async fn too_long() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "0", wait = "0", renew = "0.0s")]
async fn nothing_without_a_unit() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = 0, wait = 0, renew = 99999999999)]
async fn numbers() -> Result<(), Error> {
    Ok(())
}

fn main() {}
