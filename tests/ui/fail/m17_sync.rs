//! Functions that are not async, or not any more.

#![allow(unused)]

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
