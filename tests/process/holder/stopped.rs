//! A holder that is stopped in the middle of its body and goes on when another owner has its lock.

use std::thread;
use std::time::Duration;

use dlock::{Error, ErrorKind, Held, distributed_lock};
use dlock_contract::BootInstant;

use super::resource;
use crate::arena::{PATIENCE, TTL, now};

pub(crate) const RESOURCE_VALUE_OF_THE_LATE: &str = "by the first holder, too late";

/// Prints each step, so that the trial can compare it with the promises.
pub(super) async fn in_the_body() {
    match body().await {
        Ok(()) => println!("call ok"),
        Err(error) => println!("call {}", error.kind().as_str()),
    }
}

#[distributed_lock(key = "job", ttl = "2s", wait = "60s")]
async fn body() -> Result<(), Error> {
    let held = dlock::current().unwrap();
    resource().write(&held.fence()?, "by the first holder").await?;
    // From here on it is past its check.
    held.check()?;
    let checked = now();
    println!("held {}", held.fence()?.get());
    sleep_through_the_stop(checked);
    match held.check() {
        Ok(()) => println!("check ok"),
        Err(error) => println!("check {}", error.kind().as_str()),
    }
    println!("write {}", write_late(held));
    tokio::task::yield_now().await;
    println!("body went on");
    Ok(())
}

/// Blocks, as a long computation does, until this process was stopped for longer than the ttl and woken again.
fn sleep_through_the_stop(start: BootInstant) {
    let mut last = start;
    loop {
        thread::sleep(Duration::from_millis(1));
        let now = now();
        if now.since(last) > TTL {
            return;
        }
        last = now;
        assert!(last.since(start) < PATIENCE, "this process was never stopped");
    }
}

/// The write that had passed its check before the stop. On a thread: at an await of its own, the body would end.
fn write_late(held: Held) -> &'static str {
    let write = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fence = held.fence().unwrap();
        match runtime.block_on(resource().write(&fence, RESOURCE_VALUE_OF_THE_LATE)) {
            Ok(()) => "done",
            Err(error) if matches!(error.kind(), ErrorKind::FenceStale { .. }) => "refused as stale",
            Err(error) => panic!("{error}"),
        }
    };
    thread::spawn(write).join().unwrap()
}
