//! Words that an option does not know, and names without their quotes.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

const PAUSES: &str = "100ms..5s";
const RETRY: u32 = 3;
const NAME: &str = "a";
const KEYS: [&str; 2] = ["a", "b"];

#[distributed_lock(key = stock, ttl = thirty, wait = never, backend = redis)]
async fn no_quotes(id: u64) -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "a", at_most = minute)]
async fn scheduled() {}

#[distributed_lock(key = "a", wait = none)]
async fn word_or_parameter(none: Duration) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_busy = later, mode = permits(3, 4), guard = mut held)]
async fn nearly() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = Mode::Read, fair = cfg!(unix), backoff = PAUSES, retry = RETRY, cohort = passes())]
async fn no_expressions() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", retry = 0, cohort = 0, name = NAME, keys = KEYS, rerun = RERUN)]
async fn none_and_names() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", retry = "none", attempts = "3", guard = Held, fence = true)]
async fn quotes() -> Result<(), Error> {
    Ok(())
}

fn main() {}
