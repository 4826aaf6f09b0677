//! `attempts` and `backoff`: how often a store is asked. Where the kernel wakes waiters of SQLite, no store here is polled.

use dlock::{Error, ErrorKind, distributed_lock};

use crate::stores::{Other, answered, on_each};

#[distributed_lock(key = "attempts", wait = "500ms", attempts = 2, backend = store)]
async fn two(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "attempts", wait = "500ms", backend = store)]
async fn many(store: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "attempts", wait = "500ms", backoff = "10m..10m", backend = store)]
async fn rarely(store: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn attempts_and_pauses_are_bounded_where_they_are_said_to_be() {
    on_each(async |store| {
        let other = Other::holds(store, "attempts").await;
        let attempts = |end: Result<(), Error>| {
            let error = end.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::WaitTimeout);
            error.attempts()
        };
        let (two, many, rarely) = (
            answered(async || two(store).await).await,
            answered(async || many(store).await).await,
            answered(async || rarely(store).await).await,
        );
        let (two, many, rarely) = (attempts(two), attempts(many), attempts(rarely));
        if store == "sqlite" && cfg!(target_os = "linux") {
            // A release of another key with the same side file wakes waiters too, so nothing bounds `rarely`.
            assert!(two <= 2, "{two} {many} {rarely}");
        } else if store == "sqlite" {
            // Of a pause of up to ten minutes hardly one ends in half a second, and no four in a row.
            assert!(two == 2 && many > 4 && rarely <= 4, "{two} {many} {rarely}");
        } else {
            assert!(two <= 2 && rarely <= 4, "{two} {rarely}");
        }
        other.releases().await;
    })
    .await;
}
