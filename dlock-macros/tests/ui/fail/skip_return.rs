//! A function that may be skipped must be able to say so.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", on_busy = skip)]
async fn number() -> u64 {
    5
}

#[distributed_lock(key = "a", on_outage = skip)]
fn result_of_number() -> Result<u64, Error> {
    Ok(5)
}

#[distributed_lock(key = "a", once_per = "1m")]
async fn nothing() {}

#[distributed_lock(key = "a", once_per = "1m")]
fn count() -> u64 {
    5
}

fn main() {}
