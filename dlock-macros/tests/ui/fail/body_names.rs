//! Only the names that were asked for are in the body, and they are there in spite of other mistakes.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", tll = "5s", guard = held, fence = token)]
async fn with_a_mistake() -> Result<u64, Error> {
    held.check()?;
    Ok(token.get())
}

#[distributed_lock(keys = ["a", "b"], tll = "5s", guard = all)]
fn several_with_a_mistake() -> Result<usize, Error> {
    all[0].check()?;
    Ok(all.len())
}

fn main() {}
