//! Control characters are invisible in logs and poison in protocols.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock\0:<id>\r\n")]
async fn key(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<id>", backend = "red\u{1b}is")]
async fn backend(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
