//! Durations are numbers with units.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", ttl = "30", wait = "1.5x", renew = "-5s")]
async fn numbers() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "３０s", wait = "30 s", renew = "")]
async fn characters() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = 30, wait = 5s, renew = 10.0)]
async fn bare_numbers() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "1M", wait = "soon", renew = "often")]
async fn words() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "1.5s", wait = "1m 30s", renew = "1m30")]
async fn nearly() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "30 seconds", wait = "1 minute", renew = "1 hour 30 mins")]
async fn long_units() -> Result<(), Error> {
    Ok(())
}

fn main() {}
