//! The compiler checks the call of the `on_busy` fallback.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

async fn other(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "a", on_busy = call(other))]
async fn more_arguments(id: u64, n: u64) -> Result<u64, Error> {
    Ok(id + n)
}

#[distributed_lock(key = "a", on_busy = call(other))]
async fn other_type(id: u64) -> Result<String, Error> {
    Ok(id.to_string())
}

#[distributed_lock(key = "a", on_busy = call(other))]
fn not_async(id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
