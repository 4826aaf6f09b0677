//! Options that do not go together are told also where a value of theirs is wrong, or where one of them is misspelt.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock, scheduled_lock};

#[distributed_lock(key = 5, keys = ["a:<idd>"])]
async fn key_is_no_text(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a:<idd>", keys = "b:<nn>")]
async fn both_name_nobody(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a:<idd>", 5], fence = "token", once_per = 1)]
async fn keys_are_no_texts() -> Result<u64, Error> {
    Ok(token.get())
}

#[distributed_lock(key = "a", rerun = always, offset = 12)]
async fn nothing_to_rerun() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", oncee_per = "1m", rerun = always)]
async fn misspelt() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = permits, once_per = 1)]
async fn shared_period() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", fair, cohort = "64/3")]
async fn overtaken() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", fair = false, cohort = "64/3")]
async fn not_fair() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a:<id>", guard = "held", fence = "held")]
async fn one_name(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a:<id>", guard = "id")]
async fn a_parameters_name(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", timeout = 5)]
fn not_async() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key: "a:<idd>", keys)]
async fn colon(id: u64) -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "a", at_most = 5, rerun, offset: "1h")]
async fn scheduled() {}

fn main() {}
