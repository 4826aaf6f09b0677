//! Nothing of the expansion can be seen in the body.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(keys = ["a", "b"], guard = held)]
async fn nothing_else() -> Result<(), Error> {
    drop(__dlock_held);
    drop(__dlock_guards);
    drop(__dlock_call);
    Ok(())
}

#[optimistic]
fn attempts() -> Result<(), Error> {
    drop(__dlock_attempts);
    Ok(())
}

fn main() {}
