//! Constant expressions as values: they cannot use arguments of the call, and are checked like literals.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

const NONE: u32 = 0;
const SECONDS: u64 = 30;
const AGES: Duration = Duration::from_secs(u64::MAX);

fn count() -> u32 {
    3
}

trait Limits {
    const LONGEST: Duration;
}

struct Shop {
    limit: Duration,
}

impl Shop {
    const LONGEST: Duration = Duration::from_secs(600);

    #[distributed_lock(key = "a", timeout = limit, max_hold = self.limit, min_hold = Self::LONGEST, renew = often)]
    async fn of_the_call(&self, limit: Duration) -> Result<(), Error> {
        Ok(())
    }
}

#[distributed_lock(key = "a", mode = permits(N), attempts = N + 1, max_waiters = count, once_per = L::LONGEST)]
async fn generic<L: Limits, const N: u32>() -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "a", at_most = "1m", at_least = least)]
async fn scheduled(least: Duration) -> Result<(), Error> {
    Ok(())
}

#[optimistic(retries = n)]
async fn again(n: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = SECONDS, attempts = SECONDS)]
async fn types() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", attempts = count())]
async fn not_const() -> Result<(), Error> {
    Ok(())
}

fn main() {}
