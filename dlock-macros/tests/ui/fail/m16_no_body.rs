//! A declaration has nothing to lock.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

trait Shop {
    #[distributed_lock(key = "item:<id>")]
    async fn sell(&self, id: u64) -> Result<(), Error>;
}

fn main() {}
