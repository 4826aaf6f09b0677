//! The sister attribute speaks in its own words.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[scheduled_lock]
async fn bare() {}

#[scheduled_lock(name = "a:<idd>", at_most = "5m", at_least = "10m")]
async fn least_over_most(id: u64) {}

#[scheduled_lock(key = "a", ttl = "5m", min_hold = "1m", wait = "5s")]
async fn words_of_the_other() {}

#[scheduled_lock(name = task, at_most = 5)]
async fn wrong_types() {}

#[scheduled_lock(name = "a:<ids..>", at_most = "5m", rerun = on_crash)]
async fn list(ids: &[u8]) {}

#[scheduled_lock(name = "a", at_most = "5m", offset = "1h")]
async fn offset_alone() {}

#[scheduled_lock(name = "a", at_most = "5m")]
async fn number() -> u64 {
    5
}

#[scheduled_lock(name = "a", at_most = "5m")]
#[scheduled_lock(name = "a", at_most = "5m")]
async fn twice() {}

#[scheduled_lock(name = "a", at_most = "5m")]
struct Task;

fn main() {}
