//! The function that is called instead is given the same arguments, and gives the same type.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

async fn other(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "a:<id>", on_busy = call(other))]
async fn pattern((id, _): (u64, u8), _: u8) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
