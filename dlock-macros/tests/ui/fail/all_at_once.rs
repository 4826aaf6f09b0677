//! Every mistake is reported, each at its own place, and the callers see the function.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<idd>:<nn>", tll = "30s", wait = 5, renew = "0s", backend = "")]
const fn deduct(id: u64, n: u32) -> Result<(), Error> {
    Ok(())
}

// Judged against the function as it was written: only this argument is wrong.
fn caller() -> Result<(), Error> {
    deduct(1, "two")
}

fn main() {}
