//! Mistakes in the body are reported in the body.

#![allow(unused, reason = "only the attribute is looked at")]

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "a")]
async fn wrong_value() -> Result<u64, Error> {
    Ok("text")
}

#[distributed_lock(key = "a")]
async fn wrong_return(id: u64) -> Result<u64, Error> {
    if id == 1 {
        return "text";
    }
    Ok(id)
}

#[distributed_lock(key = "a")]
async fn no_tail(id: u64) -> Result<u64, Error> {
    id + 1;
}

#[distributed_lock(key = "a")]
async fn wrong_question_mark() -> Result<u64, Error> {
    let number: u64 = "5".parse()?;
    Ok(number)
}

#[distributed_lock(key = "a")]
async fn not_mutable(id: u64) -> Result<u64, Error> {
    id += 1;
    Ok(id)
}

fn assert_send<T: Send>(_: T) {}

#[distributed_lock(key = "a")]
async fn not_send() -> Result<(), Error> {
    let here = std::rc::Rc::new(5);
    std::future::ready(()).await;
    drop(here);
    Ok(())
}

fn callers() {
    assert_send(not_send());
}

fn main() {}
