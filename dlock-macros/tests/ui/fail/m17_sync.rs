//! Functions that are not async pass the same checks. Options that need cancellation are refused.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a", timeout = "5s", on_lost = cancel)]
fn cannot_be_stopped() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a")]
fn nothing() {}

#[distributed_lock(key = "a")]
fn number() -> u64 {
    5
}

#[distributed_lock(key = "a")]
fn wrong_value() -> Result<u64, Error> {
    Ok("text")
}

#[distributed_lock(key = "a")]
fn wrong_question_mark() -> Result<u64, Error> {
    let number: u64 = "5".parse()?;
    Ok(number)
}

#[distributed_lock(key = "a")]
fn wrong_return(id: u64) -> Result<u64, Error> {
    if id == 1 {
        return "text";
    }
    Ok(id)
}

fn main() {}
