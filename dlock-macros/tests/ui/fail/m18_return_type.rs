//! A return type that has no place for the error of the lock.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[derive(Debug)]
struct Other;

#[distributed_lock(key = "a")]
async fn number() -> u64 {
    5
}

#[distributed_lock(key = "a")]
async fn nothing() {}

#[distributed_lock(key = "a")]
async fn other_error(id: u64) -> Result<u64, Other> {
    Ok(id)
}

#[distributed_lock(key = "a")]
async fn hidden() -> Option<impl IntoIterator<Item = u8>> {
    Some(std::iter::empty())
}

fn main() {}
