//! Options that do not go together; of two, the later one is told.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "a", keys = ["b", "c"])]
async fn both() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a:<ids..>", "b", "a:<ids..>"])]
async fn same_key(ids: &[u8]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a:<ids..>")]
async fn list_in_one(ids: &[u8]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = "a:<ids..>:<others..>")]
async fn two_lists(ids: &[u8], others: &[u8]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], fence = token, once_per = "1m")]
async fn several_keys() -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(key = "a", rerun = "on_crash")]
async fn rerun_alone() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", offset = "12h")]
async fn offset_alone() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", once_per = "1d", offset = "24h")]
async fn whole_period() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = read, once_per = "1m")]
async fn shared_period() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", guard = held, fence = held)]
async fn one_name() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", fair, cohort = "64/3s")]
async fn overtaken() -> Result<(), Error> {
    Ok(())
}

fn main() {}
