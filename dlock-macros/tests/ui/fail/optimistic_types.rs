//! A function with `#[optimistic]` must return an error that can be a conflict, and must not move its arguments.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

struct Other;

#[optimistic]
async fn number() -> u64 {
    5
}

#[optimistic]
fn other_error() -> Result<u64, Other> {
    Ok(5)
}

#[optimistic]
async fn moved(name: String) -> Result<(), Error> {
    drop(name);
    Ok(())
}

#[optimistic]
fn moved_blocking(name: String) -> Result<(), Error> {
    drop(name);
    Ok(())
}

fn main() {}
