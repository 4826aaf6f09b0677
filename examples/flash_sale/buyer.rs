//! One purchase, without a lock and with it.

use std::time::{Duration, Instant};

use dlock::{ErrorKind, distributed_lock};

use crate::Failure;
use crate::shop::Shop;

/// How long a buyer looks at the price.
const THINKING: Duration = Duration::from_millis(5);

/// How a buyer's visit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Bought,
    SoldOut,
    /// The lock did not come in time, so nothing was done.
    TimedOut,
}

/// Looks at the stock, thinks, and writes down what is left: right only if nobody else does so at the same time.
async fn look_and_buy(shop: &Shop, buyer: u32, token: Option<u64>) -> Result<Visit, Failure> {
    let left = shop.stock().await?;
    if left == 0 {
        return Ok(Visit::SoldOut);
    }
    tokio::time::sleep(THINKING).await;
    shop.sell(buyer, left - 1, token).await?;
    Ok(Visit::Bought)
}

/// The same, one buyer at a time over all processes. The lock's token goes into the ledger with the purchase.
#[distributed_lock(key = "stock:<item>", ttl = "30s", wait = "2m", backend = "main")]
async fn buy_in_turn(shop: &Shop, item: &str, buyer: u32, asked: Instant) -> Result<(Visit, Duration), Failure> {
    let waited = asked.elapsed();
    let token = dlock::current().ok_or("no lock is held")?.fence()?.get();
    Ok((look_and_buy(shop, buyer, Some(token)).await?, waited))
}

pub(crate) async fn visit_unlocked(shop: &Shop, buyer: u32) -> Result<(Visit, Duration), Failure> {
    Ok((look_and_buy(shop, buyer, None).await?, Duration::ZERO))
}

pub(crate) async fn visit_locked(shop: &Shop, buyer: u32) -> Result<(Visit, Duration), Failure> {
    let asked = Instant::now();
    match buy_in_turn(shop, "phone", buyer, asked).await {
        Err(failure) if is_wait_timeout(&failure) => Ok((Visit::TimedOut, asked.elapsed())),
        result => result,
    }
}

fn is_wait_timeout(failure: &Failure) -> bool {
    failure.downcast_ref::<dlock::Error>().is_some_and(|error| *error.kind() == ErrorKind::WaitTimeout)
}
