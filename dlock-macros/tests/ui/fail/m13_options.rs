//! Options that are unknown, given twice, or of the wrong type.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", tll = "30s")]
async fn misspelt() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", colour = "red")]
async fn unknown() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", ttl = "30s", ttl = "40s")]
async fn twice() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = 5, ttl = true, wait = false, renew = "x", backend = 'r')]
async fn wrong_type() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("stock:<id>", key = "a", ttl("30s"), renew, fair("yes"), wait =)]
async fn wrong_form() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a" ttl = "30s")]
async fn missing_comma() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", lease_time = "30s", auto_renew = true, store = "redis", retries = 3)]
async fn words_of_others() -> Result<(), Error> {
    Ok(())
}

// A function is only called while its options are right: here only the options are reported.
async fn callers() {
    let _ = (misspelt().await, unknown().await, twice().await, wrong_type().await);
}

fn main() {}
