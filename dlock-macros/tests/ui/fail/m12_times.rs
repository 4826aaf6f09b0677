//! Times that do not fit together: the one that the text begins with is told.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", ttl = "30s", min_hold = "31s")]
async fn least_over_ttl() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", min_hold = "31s", ttl = "30s")]
async fn least_first() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = "29s", ttl = "30s")]
async fn most_under_ttl() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "30s", renew = false, timeout = "29700ms")]
async fn not_covered() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", timeout = "30s", ttl = "30s", renew = false)]
async fn not_covered_either() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "1m30s", min_hold = "2m", max_hold = "1m", renew = "2m")]
async fn all() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", max_waiters = 0, attempts = 0)]
async fn no_waiters() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", once_per = "10us")]
async fn short_period() -> Result<(), Error> {
    Ok(())
}

fn main() {}
