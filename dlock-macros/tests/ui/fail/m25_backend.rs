//! A backend is a name, or a constant that holds one.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

const NUMBER: u8 = 5;

#[distributed_lock(key = "a", backend = "")]
async fn empty() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = concat!("re", "dis"))]
async fn expression() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = NUMBER)]
async fn not_a_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
