//! Brackets that do not make a placeholder.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<id")]
async fn unclosed(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<>:a>b")]
async fn empty_and_stray(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<id + 1>")]
async fn expression(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = r"<id.1x>")]
async fn bad_field(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<id.self>:<id.99999999999>")]
async fn no_fields(id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
