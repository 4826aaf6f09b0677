//! The second of two equal locks would wait for the first one.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<id>", ttl = "30s")]
#[distributed_lock(key = "stock:<id>", ttl = "40s")]
async fn same_key(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<id>")]
#[dlock::distributed_lock(key = r"stock:<id>")]
async fn same_key_by_path(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
