#![forbid(unused, unreachable_code, unsafe_code)]
//! The expansion switches off no lint, so a crate may forbid them.

use dlock::{Error, Outcome, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(key = "<id>", guard = held, fence = token, on_busy = call(instead))]
async fn locked(id: u64) -> Result<u64, Error> {
    held.check()?;
    Ok(token.get() + id)
}

fn instead(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(keys = ["a:<id>", "b"], guard = all)]
fn blocking(id: u64) -> Outcome<usize> {
    (all.len() + usize::from(id == 0)).into()
}

#[scheduled_lock(name = "task", at_most = "1m")]
async fn task() {}

#[optimistic]
fn again(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[test]
fn annotated_functions_compile_where_lints_are_forbidden() {
    drop((locked(1), task(), again(1)));
    assert!(matches!(blocking(1), Outcome::Refused(_)));
}
