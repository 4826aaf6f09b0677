//! The smallest honest program: one lock on one function.
//!
//! `cargo run --example stock`

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use dlock::{ErrorKind, distributed_lock};

#[derive(Debug, thiserror::Error)]
enum SellError {
    #[error("sold out")]
    SoldOut,
    /// This is all that the attribute asks of an error type: `From<dlock::Error>`.
    #[error(transparent)]
    Lock(#[from] dlock::Error),
}

/// Runs in one place at a time for each `id`, in whatever process it is called.
#[distributed_lock(key = "stock:<id>", ttl = "30s", wait = "100ms", backend = "main")]
async fn sell(id: u64, left: u32, takes: Duration) -> Result<u32, SellError> {
    tokio::time::sleep(takes).await;
    left.checked_sub(1).ok_or(SellError::SoldOut)
}

#[tokio::main]
async fn main() -> Result<(), dlock::Error> {
    // For locks between processes: sqlite://locks.db, redis://host, mysql://…, postgres://…, etcd://…
    dlock::connect("main", "memory://").await?;

    tell(sell(42, 3, Duration::ZERO).await);
    tell(sell(42, 0, Duration::ZERO).await);

    // Two at once on one id: the second waits for 100 ms and gives up. Another id is another lock.
    let slow = Duration::from_millis(500);
    let (first, second, other) = tokio::join!(sell(42, 2, slow), sell(42, 2, slow), sell(43, 9, slow));
    for result in [first, second, other] {
        tell(result);
    }
    Ok(())
}

fn tell(result: Result<u32, SellError>) {
    match result {
        Ok(left) => println!("sold, {left} left"),
        Err(SellError::SoldOut) => println!("sold out: the function's own error, the lock was fine"),
        // `WaitTimeout` here; with `wait = "none"` it is `Busy`, and comes at once.
        Err(SellError::Lock(error)) if error.is_contention() => println!("somebody else is at it: {error}"),
        Err(SellError::Lock(error)) => match error.kind() {
            // The function was stopped at an `.await`: what it had done so far is done, somebody else may go on.
            ErrorKind::Lost(cause) => println!("the lock was lost ({cause:?}): {error}"),
            _ => println!("nothing was sold: {error}"),
        },
    }
}
