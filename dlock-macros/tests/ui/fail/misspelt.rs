//! Every option has its nearest neighbours.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(kye = "a", kyes = ["a"], tll = "1s", wiat = "1s", attemps = 1, backof = "1s..2s", max_waiter = 1)]
async fn a() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backed = "a", kind = read, mde = read, fare, cohorts = true, reentrent, renews = true, maxhold = "1h")]
async fn b() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", time_out = "1s", minhold = "1s", onceper = "1m", re_run = on_crash, onbusy = skip, on_loss = cancel)]
async fn c() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", onoutage = skip, retri = 1, gaurd = g, fense = f, nam = "a", crat = dlock)]
async fn d() -> Result<(), Error> {
    Ok(())
}

fn main() {}
