//! A backend is a name, or an expression that gives one.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

const NUMBER: u8 = 5;

#[distributed_lock(key = "a", backend = "")]
async fn empty() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = primary)]
async fn no_such_constant() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = 5)]
async fn wrong_literal() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = NUMBER)]
async fn not_a_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
