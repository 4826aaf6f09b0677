//! A backend without quotes is the path of a constant.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", backend = primary)]
async fn no_such_constant() -> Result<(), Error> {
    Ok(())
}

fn main() {}
