//! Functions that are not async, or not any more.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<id>")]
fn sync(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a")]
fn nothing() {}

#[tokio::main]
#[distributed_lock(key = "a")]
async fn below_another() -> Result<(), Error> {
    Ok(())
}

fn main() {}
