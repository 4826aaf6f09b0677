//! There is no `self` outside of a method.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "shop:<self.id>")]
async fn free(id: u64) -> Result<(), Error> {
    Ok(())
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "shop:<self.id>")]
    async fn associated(id: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
