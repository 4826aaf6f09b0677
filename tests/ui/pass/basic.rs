#![deny(warnings, clippy::all, clippy::pedantic)]
//! The shape of the README, silent under every lint.

use dlock::distributed_lock;

#[derive(Debug)]
enum OrderError {
    Empty,
    Lock(dlock::Error),
}

impl From<dlock::Error> for OrderError {
    fn from(error: dlock::Error) -> Self {
        OrderError::Lock(error)
    }
}

#[distributed_lock(key = "stock:<id>", ttl = "30s", backend = "redis", wait = "5s", renew = true)]
async fn deduct(id: u64, mut n: u32) -> Result<u32, OrderError> {
    const STEP: u32 = 1;
    if n == 0 {
        return Err(OrderError::Empty);
    }
    n -= STEP;
    let id = u32::try_from(id).map_err(|_| OrderError::Empty)?;
    std::future::ready(()).await;
    Ok(n + id)
}

fn main() {
    let _future = deduct(7, 2);
}
