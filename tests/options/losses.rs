//! `on_lost`: what happens to a body that lost its lock.

use dlock::{ErrorKind, LossCause, Outcome, distributed_lock};

use crate::stores::{MS, on_each, soon};

/// Long after the lock, and short enough to be waited for.
async fn late() -> Outcome<u8> {
    tokio::time::sleep(1500 * MS).await;
    1.into()
}

#[distributed_lock(key = "lost", ttl = "1s", renew = false, backend = store)]
async fn default(store: &str) -> Outcome<u8> {
    late().await
}

#[distributed_lock(key = "lost:cancel", ttl = "1s", renew = false, on_lost = cancel, backend = store)]
async fn cancel(store: &str) -> Outcome<u8> {
    late().await
}

#[distributed_lock(key = "lost:continue", ttl = "1s", renew = false, on_lost = continue, backend = store)]
async fn goes_on(store: &str) -> Outcome<u8> {
    late().await
}

#[tokio::test]
async fn a_body_that_lost_its_lock_is_dropped_unless_on_lost_is_continue() {
    on_each(async |store| {
        let all = async { tokio::join!(default(store), cancel(store), goes_on(store)) };
        let (default, cancel, goes_on) = soon(all).await;
        for (outcome, output) in [(default, None), (cancel, None), (goes_on, Some(1))] {
            let Outcome::Lost(came, error) = outcome else { panic!("{outcome:?}") };
            assert_eq!((came, error.kind()), (output, &ErrorKind::Lost(LossCause::Deadline)));
            assert!(error.to_string().contains("it is not renewed"), "{error}");
        }
    })
    .await;
}
