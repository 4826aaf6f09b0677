//! A renewal has to come before the end, early enough for another one.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", ttl = "30s", renew = "30s")]
async fn same() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", renew = "1m", ttl = "30s")]
async fn longer() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "1s", renew = "995ms")]
async fn just_before() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "3s", renew = "2001ms")]
async fn over_two_thirds() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "3s", renew = "2s")]
async fn two_thirds() -> Result<(), Error> {
    Ok(())
}

fn main() {}
