//! A lock needs a name.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock]
async fn bare() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(ttl = "30s")]
async fn other_options() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "")]
async fn empty() -> Result<(), Error> {
    Ok(())
}

fn main() {}
