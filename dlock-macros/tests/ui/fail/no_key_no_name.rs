//! Expressions that give neither a key nor a name. The text of a constant is no template.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

const KEY: &str = "stock:<id>";

#[distributed_lock(key = KEY)]
async fn constant(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = id)]
async fn number(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backend = main)]
async fn function() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<ids>")]
async fn list(ids: Vec<u64>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
