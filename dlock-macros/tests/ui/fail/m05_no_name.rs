//! A parameter without a name.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<_>")]
async fn underscore(_: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
