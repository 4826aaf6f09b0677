//! The syntax of lock annotations in other languages.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock, scheduled_lock};

#[distributed_lock(key = "stock:{id}")]
async fn braces(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["stock:<id>", "shop:#order.shop.id:#{id}", "${id}"])]
async fn marks(id: u64, order: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<order.id()>")]
async fn method(order: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("stock:<id>", ttl = "5s")]
async fn no_name(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key: "stock:<id>", ttl = "5s")]
async fn colon(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", read, permits = 3, exclusive = true)]
async fn modes() -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock("report", at_most = "5s")]
async fn task() {}

fn main() {}
