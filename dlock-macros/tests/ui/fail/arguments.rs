//! Arguments that cannot all be dropped under the lock, and a caller that the body cannot see.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Error, distributed_lock, optimistic};

struct Job {
    id: u64,
    limit: Duration,
}

#[distributed_lock(key = "a", ttl = limit)]
async fn expression(Job { limit, .. }: Job) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a:<id>")]
#[distributed_lock(key = "b")]
async fn below((id, _): (u64, String), _: String, (all, of_it): (String, String)) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a")]
#[track_caller]
fn caller() -> Result<(), Error> {
    Ok(())
}

#[optimistic]
#[cfg_attr(all(), track_caller)]
fn caller_of_attempts() -> Result<(), Error> {
    Ok(())
}

fn main() {}
