//! Types that cannot stand in a key, and fields that are not there.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

struct Order {
    id: u64,
    price: f64,
}

#[distributed_lock(key = "order:<price>")]
async fn float(price: f64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "order:<order.id>:<order.price>")]
async fn float_field(order: Order) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "order:<order.idd>")]
async fn no_such_field(order: Order) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "order:<pick>")]
async fn closure(pick: impl Fn() -> u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
async fn unbounded<T>(id: T) -> Result<(), Error> {
    Ok(())
}

fn main() {}
