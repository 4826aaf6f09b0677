//! Functions that are run again.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[optimistic(retries = 0, backoff = 5)]
async fn values() -> Result<(), Error> {
    Ok(())
}

#[optimistic(tries = 3, retries = many, backoff = "2s..1s")]
async fn misspelt() -> Result<(), Error> {
    Ok(())
}

#[optimistic]
async fn changed(mut n: u64) -> Result<u64, Error> {
    n += 1;
    Ok(n)
}

struct Path<T>(T);

#[optimistic]
async fn deep(Path(mut id): Path<u64>, (mut a, _): (u8, u8)) -> Result<u64, Error> {
    id += 1;
    Ok(id)
}

#[optimistic]
fn lazy() -> impl Future<Output = Result<(), Error>> {
    async { Ok(()) }
}

#[optimistic]
const fn constant() -> u8 {
    0
}

#[optimistic]
struct Task;

fn main() {}
