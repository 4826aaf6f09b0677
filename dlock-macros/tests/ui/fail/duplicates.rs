//! No option can be given twice.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", key = "b", keys = ["c"], keys = ["d"], ttl = "1s", ttl = "1s", wait = "1s", wait = "1s", fair, fair)]
async fn a() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", attempts = 1, attempts = 1, mode = read, mode = read, guard = g, guard = h, crate = dlock, crate = dlock)]
async fn b() -> Result<(), Error> {
    Ok(())
}

fn main() {}
