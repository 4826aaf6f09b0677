//! Values that an option cannot have.

#![allow(unused, reason = "only the attribute is looked at")]

use std::time::Duration;

use dlock::{Conflict, Error, Key, distributed_lock, optimistic, scheduled_lock};

#[distributed_lock(keys = [1, 2])]
async fn keys_numbers() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = [])]
async fn keys_none() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ids)]
async fn keys_name() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a:<", ""])]
async fn keys_brackets() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = format!("a:{}", 5))]
async fn formatted() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", attempts = "3", max_waiters = 1.5)]
async fn counts() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", fair = yes, reentrant = "true")]
async fn flags() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = shared)]
async fn modes() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = "wirte")]
async fn kind_near() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = permits(0))]
async fn permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = permits)]
async fn permits_bare() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", mode = permits("3"))]
async fn permits_text() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", cohort = "many")]
async fn cohorts() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", cohort = "0/3s")]
async fn cohort_none() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", cohort = "64/3")]
async fn cohort_time() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backoff = "5s..100ms")]
async fn pauses() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backoff = "100ms")]
async fn one_pause() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", backoff = "100..5s")]
async fn pause_units() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", retry = "often")]
async fn retries() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", retry = "5, 2s..1s")]
async fn retry_pauses() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", retry = true)]
async fn retry_true() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", max_hold = 5, timeout = "soon", min_hold = true, once_per = minute)]
async fn times() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_busy = wait)]
async fn busy() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_busy = call)]
async fn busy_call() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_busy = call(other(5)))]
async fn busy_call_with() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_lost = "abort")]
async fn lost() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", on_outage = call(other))]
async fn outage() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", once_per = "1m", rerun = always)]
async fn reruns() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", guard = "held", fence = self.token, name = label)]
async fn names() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", name = "two\nlines")]
async fn labels() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "a", crate = "no path", crate = 5)]
async fn paths() -> Result<(), Error> {
    Ok(())
}

fn main() {}
