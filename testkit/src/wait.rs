//! Bounded waits for actions of another thread, process or server.

use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Blocks until something is so, for a minute at most.
pub fn block_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_so() {
        in_time(what, started)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The same in a task, which lets others go on.
pub async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_so().await {
        in_time(what, started)?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn in_time(what: &str, started: Instant) -> Result<()> {
    if started.elapsed() < LIMIT { Ok(()) } else { Err(Error::new(format!("not within a minute: {what}"))) }
}
