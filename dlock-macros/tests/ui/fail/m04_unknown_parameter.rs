//! A placeholder that names no parameter.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "stock:<item_idd>")]
async fn near(item_id: u64, n: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<zebra>:<quagga>")]
async fn far((item_id, _): (u64, u8), n: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<id>")]
async fn without_parameters() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<T>")]
async fn type_parameter<T, const N: usize>(value: T) -> Result<(), Error> {
    Ok(())
}

fn main() {}
