#![deny(warnings)]
//! Every form of every option, and two locks on one function.

use dlock::{Error, distributed_lock};

const STORE: &str = "redis";

mod stores {
    pub(crate) const MAIN: &str = "main";
}

#[distributed_lock(key = "nightly")]
async fn key_alone() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a<<b", ttl = "1m30s", wait = "none", renew = false, backend = STORE,)]
async fn one() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(renew = "100ms", wait = "forever", backend = stores::MAIN, ttl = "500ms", key = r"a")]
async fn two() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "shop:<shop>")]
#[dlock::distributed_lock(key = "item:<item>")]
async fn ordered(shop: u8, item: u8) -> Result<u8, Error> {
    Ok(shop + item)
}

pub(crate) fn make() {
    drop(key_alone());
    drop(one());
    drop(two());
    drop(ordered(1, 2));
}
