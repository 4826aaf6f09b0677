//! Options with a constant as their value work like options with a literal.

use std::time::Duration;

use dlock::{Error, ErrorKind, Mode, distributed_lock, scheduled_lock};

use crate::stores::{MS, Other, is_busy, is_over, on_each, soon, until_waiting};

const SHORT: Duration = Duration::from_millis(500);
/// A slow machine renews in time.
const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(20);
const ONE: u32 = 1;

struct Limits;

impl Limits {
    const WORKERS: u32 = 2;

    const fn longest() -> Duration {
        Duration::from_millis(3300)
    }
}

#[distributed_lock(key = "constants:max_hold", ttl = TTL, max_hold = Limits::longest(), backend = store)]
async fn max_hold(store: &str) -> Result<(), Error> {
    std::future::pending().await
}

#[distributed_lock(key = "constants:timeout", timeout = SHORT, backend = store)]
async fn timeout(store: &str) -> Result<(), Error> {
    std::future::pending().await
}

#[distributed_lock(key = "constants:renew", ttl = TTL, renew = Duration::from_millis(300), backend = store)]
async fn renew(store: &str) -> Result<(), Error> {
    tokio::time::sleep(TTL + SHORT).await;
    Ok(())
}

#[distributed_lock(key = "constants:min_hold", min_hold = LONG, wait = none, backend = store)]
async fn min_hold(store: &str) -> Result<(), Error> {
    Ok(())
}

#[scheduled_lock(name = "constants:at_least", at_most = LONG, at_least = LONG, on_busy = error, backend = store)]
async fn at_least(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "constants:once_per", once_per = Duration::from_secs(7 * 24 * 3600), offset = LONG, backend = store)]
async fn once_per(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "constants:pool", mode = permits(Limits::WORKERS), wait = "none", guard = held, backend = store)]
async fn permit(store: &str) -> Result<Option<u32>, Error> {
    Ok(held.slot())
}

#[distributed_lock(key = "constants:attempts", wait = forever, attempts = ONE, backend = store)]
async fn attempts(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "constants:waiters", wait = "20s", max_waiters = ONE, backend = store)]
async fn max_waiters(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn options_with_constant_times_have_their_effect() {
    on_each(async |store| {
        let all = async { tokio::join!(max_hold(store), timeout(store), renew(store)) };
        let (max_hold, timeout, renew) = soon(all).await;
        is_over(&max_hold.unwrap_err());
        assert_eq!(*timeout.unwrap_err().kind(), ErrorKind::BodyTimeout);
        renew.unwrap();
        min_hold(store).await.unwrap();
        is_busy(min_hold(store).await);
        at_least(store).await.unwrap();
        is_busy(at_least(store).await);
        once_per(store).await.unwrap();
        assert_eq!(*once_per(store).await.unwrap_err().kind(), ErrorKind::AlreadyRun);
    })
    .await;
}

#[tokio::test]
async fn options_with_constant_counts_have_their_effect() {
    on_each(async |store| {
        let one = Other::holds_as(store, "constants:pool", Mode::permits(2)).await;
        assert_eq!(permit(store).await.unwrap(), Some(1));
        let two = Other::holds_as(store, "constants:pool", Mode::permits(2)).await;
        is_busy(permit(store).await);
        one.releases().await;
        two.releases().await;

        let other = Other::holds(store, "constants:attempts").await;
        assert_eq!(soon(attempts(store)).await.unwrap_err().attempts(), 1);
        other.releases().await;

        let other = Other::holds(store, "constants:waiters").await;
        let mut waiting = Box::pin(max_waiters(store));
        let full = async {
            until_waiting(store, "constants:waiters", 1).await;
            let error = max_waiters(store).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::QueueFull { max: 1 });
            other.releases().await;
        };
        let (one, ()) = soon(async { tokio::join!(&mut waiting, full) }).await;
        one.unwrap();
    })
    .await;
}

#[distributed_lock(key = "constants:of:site", ttl = "10s", timeout = SHORT, attempts = ONE, min_hold = MS, backend = "memory")]
async fn listed() -> Result<(), Error> {
    Ok(())
}

#[test]
fn the_catalogue_lists_the_values_of_constants() {
    crate::stores::installed();
    drop(listed());
    let explained = dlock::explain().to_string();
    let of_site = explained.split_once("constants::listed").unwrap().1;
    for line in ["attempts     1", "timeout      500ms", "min_hold     1ms"] {
        assert!(of_site.lines().take(20).any(|found| found.trim() == line), "{line}: {of_site}");
    }
}
