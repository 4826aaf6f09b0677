//! `ttl`, `renew` and `max_hold`: how long a lock is held.

use std::time::Duration;

use dlock::{Error, ErrorKind, Held, LossCause, distributed_lock};

use crate::stores::{LONG, MS, is_over, on_each, soon};

#[distributed_lock(key = "ttl", ttl = ttl / 2, guard = held, backend = store)]
async fn expression(store: &str, ttl: Duration) -> Result<Duration, Error> {
    Ok(held.granted())
}

#[distributed_lock(key = "ttl", ttl = "1m30s", guard = held, backend = store)]
async fn literal(store: &str) -> Result<Duration, Error> {
    Ok(held.granted())
}

#[distributed_lock(key = "ttl", guard = held, backend = store)]
async fn default(store: &str) -> Result<Duration, Error> {
    Ok(held.granted())
}

/// Whether it was renewed within some time.
async fn renewed(held: &Held, within: Duration) -> bool {
    let renewed = async {
        let mut left = held.remaining();
        loop {
            tokio::time::sleep(10 * MS).await;
            if held.remaining() > left {
                break;
            }
            left = held.remaining();
        }
    };
    tokio::time::timeout(within, renewed).await.is_ok()
}

#[distributed_lock(key = "cadence", renew = "50ms", guard = held, backend = store)]
async fn often(store: &str) -> Result<bool, Error> {
    Ok(renewed(&held, LONG).await)
}

#[distributed_lock(key = "cadence:default", guard = held, backend = store)]
async fn at_a_third(store: &str) -> Result<bool, Error> {
    Ok(renewed(&held, 500 * MS).await)
}

/// Longer than the ttl of three seconds. A slow machine renews within that.
const PAST_THE_TTL: Duration = Duration::from_millis(3500);

#[distributed_lock(key = "renew", ttl = "3s", guard = held, backend = store)]
async fn on(store: &str) -> Result<(), Error> {
    tokio::time::sleep(PAST_THE_TTL).await;
    held.confirm().await
}

#[distributed_lock(key = "renew:true", ttl = "3s", renew = true, guard = held, backend = store)]
async fn said(store: &str) -> Result<(), Error> {
    tokio::time::sleep(PAST_THE_TTL).await;
    held.confirm().await
}

#[distributed_lock(key = "renew:false", ttl = "1s", renew = false, backend = store)]
async fn off(store: &str) -> Result<(), Error> {
    std::future::pending().await
}

#[distributed_lock(key = "max_hold", ttl = "3s", max_hold = "3300ms", backend = store)]
async fn bounded(store: &str) -> Result<(), Error> {
    std::future::pending().await
}

#[tokio::test]
async fn a_lease_is_as_long_as_the_ttl() {
    let second = Duration::from_secs(1);
    on_each(async |store| {
        assert_eq!(expression(store, 4 * second).await.unwrap(), 2 * second);
        assert_eq!(literal(store).await.unwrap(), 90 * second);
        assert_eq!(default(store).await.unwrap(), 30 * second);
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_renewed_at_the_interval_of_renew() {
    on_each(async |store| {
        let (often, at_a_third) = tokio::join!(often(store), at_a_third(store));
        assert!(often.unwrap() && !at_a_third.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_body_may_outlast_the_ttl_unless_renewal_is_off_or_bounded() {
    on_each(async |store| {
        let all = async { tokio::join!(on(store), said(store), off(store), bounded(store)) };
        let (on, said, off, bounded) = soon(all).await;
        on.unwrap();
        said.unwrap();
        assert_eq!(*off.unwrap_err().kind(), ErrorKind::Lost(LossCause::Deadline));
        is_over(&bounded.unwrap_err());
    })
    .await;
}
