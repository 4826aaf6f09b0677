//! Expressions of the wrong type are told where they stand.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = name)]
async fn text_as_key(name: String) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = seconds)]
async fn number_as_ttl(seconds: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", wait = name)]
async fn text_as_wait(name: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = number)]
async fn number_as_backend(number: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "a:<number..>")]
async fn no_list(number: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "a:<amounts..>")]
fn list_of_floats(amounts: &[f64]) -> Result<(), Error> {
    Ok(())
}

fn main() {}
