//! `<…..>` takes only lists. The compiler checks the type if the macro cannot know it.

#![allow(unused, reason = "only the attribute is looked at")]

use std::sync::Arc;

use dlock::{Error, distributed_lock};

struct Ids(Vec<u64>);

struct Order {
    id: u64,
    ids: Vec<u64>,
    own: Ids,
    prices: Vec<f64>,
}

#[distributed_lock(keys = "order:<order.id..>")]
async fn number_in_a_field(order: Order) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["shop", "order:<order.own..>"])]
async fn type_of_ones_own(order: Arc<Order>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "order:<order..>")]
fn no_field(order: &Order) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "order:<order.prices..>")]
async fn floats(order: &Order) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "order:<order.ids..>")]
async fn good(order: Arc<&Order>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
