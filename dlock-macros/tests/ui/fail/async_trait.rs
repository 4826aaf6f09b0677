//! The limits of the attribute under `#[async_trait]`, and the checks that still work.

#![allow(unused, reason = "only the attribute is looked at")]

use async_trait::async_trait;
use dlock::{Error, distributed_lock};

#[async_trait]
trait Shop {
    #[distributed_lock(key = "declared:<id>")]
    async fn declared(&self, id: u64) -> Result<(), Error>;

    #[distributed_lock(key = "pattern:<id>")]
    async fn pattern(&self, (id, _): (u64, u8)) -> Result<(), Error> {
        drop(id);
        Ok(())
    }

    #[distributed_lock(key = "unknown:<idd>", ttl = 5)]
    async fn unknown(&self, id: u64) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "a")]
    async fn number(&self) -> u64 {
        5
    }

    #[distributed_lock(key = "a")]
    async fn wrong_value(&self) -> Result<u64, Error> {
        Ok("text")
    }
}

fn main() {}
