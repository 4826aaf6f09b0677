//! Above `#[tokio::main]` and `#[tokio::test]`.

use dlock::{Error, distributed_lock};

#[distributed_lock(key = "test")]
#[tokio::test]
async fn under_test() -> Result<(), Error> {
    Ok(())
}

async fn never() -> Result<(), Error> {
    std::future::pending().await
}

// The wait for a lock that nobody gives would not end here, and neither would the lock: only compiled, hardly run.
#[distributed_lock(key = "main", wait = "none", backend = "not installed")]
#[tokio::main]
async fn locked_main() -> Result<(), Error> {
    never().await
}

fn main() {
    let _: fn() -> Result<(), Error> = locked_main;
}
