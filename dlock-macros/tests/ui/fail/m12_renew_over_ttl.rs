//! A renewal has to come before the end.

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

fn main() {}
