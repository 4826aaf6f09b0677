//! Futures that are not polled for a while, as in a `select!` whose other branch is at work: they keep nobody waiting.

use std::time::Duration;

use dlock_contract::{Attempt, Backend, Queue, Released};
use dlock_testkit::holds::{claim, take};
use futures::FutureExt;

use super::database::{Database, HOUR};

/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn requests_that_are_combined_with_one_that_is_not_polled_are_sent_anyway() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let warm = take(&redis, &claim("warm", HOUR)).await;
    let claims = ["under way", "begins", "comes along"].map(|key| claim(key, HOUR));
    let mut under_way = redis.try_acquire(&claims[0], Queue::Leave);
    assert!(under_way.as_mut().now_or_never().is_none());
    let mut begins = redis.try_acquire(&claims[1], Queue::Leave);
    assert!(begins.as_mut().now_or_never().is_none());

    let comes_along = tokio::time::timeout(LIMIT, redis.try_acquire(&claims[2], Queue::Leave)).await;
    assert!(matches!(comes_along, Ok(Ok(Attempt::Acquired(_)))), "{comes_along:?}");
    let released = tokio::time::timeout(LIMIT, redis.release(&warm)).await;
    assert!(matches!(released, Ok(Ok(Released::Released))), "{released:?}");
    // Later ones, too, after a pause in which nothing was to be done.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = claim("late", HOUR);
    let mut begins_again = redis.try_acquire(&late, Queue::Leave);
    assert!(begins_again.as_mut().now_or_never().is_none());
    let warm = tokio::time::timeout(LIMIT, redis.try_acquire(&claim("warm", HOUR), Queue::Leave)).await;
    assert!(matches!(warm, Ok(Ok(Attempt::Acquired(_)))), "{warm:?}");
    for asked in [under_way, begins, begins_again] {
        assert!(matches!(asked.await, Ok(Attempt::Acquired(_))));
    }
}

#[tokio::test]
async fn a_connection_whose_opener_is_not_polled_is_opened_anyway() {
    let server = Database::own(&[]);
    let redis = server.open().await;
    let task = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let claims = ["opens", "waits"].map(|key| claim(key, HOUR));
            let mut opens = redis.try_acquire(&claims[0], Queue::Leave);
            assert!(opens.as_mut().now_or_never().is_none());
            let waits = tokio::time::timeout(LIMIT, redis.try_acquire(&claims[1], Queue::Leave)).await;
            assert!(matches!(waits, Ok(Ok(Attempt::Acquired(_)))), "{waits:?}");
            assert!(matches!(opens.await, Ok(Attempt::Acquired(_))));
        });
    };
    tokio::task::spawn_blocking(task).await.unwrap();
}
