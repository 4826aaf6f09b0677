//! `cohort`: waiters of one process pass the lock on among themselves.

use std::sync::Mutex;
use std::time::Duration;

use dlock::{Cohort, Error, Held, Key, Lock, distributed_lock};
use futures::future::join_all;

use crate::stores::{MS, installed, stranger, until_in_line, until_waiting};

/// The token, and the holder that the store shows.
type Seen = Mutex<Vec<(u64, String)>>;

async fn look(guard: &Held, store: &'static str, key: &'static str, seen: &Seen) -> Result<(), Error> {
    let holder = dlock::lock(Key::text(key)).backend(store).holders().await?.note().cloned();
    guard.check()?;
    seen.lock().unwrap().push((guard.fence()?.get(), holder.unwrap().to_string()));
    Ok(())
}

#[distributed_lock(key = "cohort:on", cohort = true, backend = store, guard = guard)]
async fn on(store: &'static str, seen: &Seen) -> Result<(), Error> {
    look(&guard, store, "cohort:on", seen).await
}

#[distributed_lock(key = "cohort:bounded", cohort = "2/3s", backend = store, guard = guard)]
async fn bounded(store: &'static str, seen: &Seen) -> Result<(), Error> {
    look(&guard, store, "cohort:bounded", seen).await
}

#[distributed_lock(key = "cohort:default", backend = store, guard = guard)]
async fn default(store: &'static str, seen: &Seen) -> Result<(), Error> {
    look(&guard, store, "cohort:default", seen).await
}

/// How often the store has granted the lock, for twelve calls at once, as far as the holders' notes differ.
async fn grants(store: &str, hold: Lock, key: &'static str, calls: impl AsyncFn(&Seen) -> Result<(), Error>) -> usize {
    let seen = Seen::default();
    let call = async |number| {
        // A note tells when it was written, in milliseconds.
        tokio::time::sleep(3 * MS * number).await;
        calls(&seen).await
    };
    let first = async {
        // Held until all the others wait.
        let held = hold.acquire().await?;
        until_waiting(store, key, 12).await;
        held.release().await
    };
    let (ends, first) = tokio::join!(join_all((1..=12).map(call)), first);
    first.unwrap();
    ends.into_iter().for_each(|end| end.unwrap());
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "each has a token of its own: {seen:?}");
    let mut holders: Vec<_> = seen.into_iter().map(|(_, holder)| holder).collect();
    assert_eq!(holders.len(), 12);
    holders.dedup();
    holders.len()
}

#[tokio::test]
async fn the_store_grants_once_for_all_waiters_of_a_cohort() {
    installed();
    for store in ["memory", "redis"] {
        let lock = |key| dlock::lock(Key::text(key)).backend(store);
        let sixty_four = Some(Cohort { passes: 64, span: None });
        assert_eq!(
            grants(store, lock("cohort:on").cohort(sixty_four), "cohort:on", async |seen| on(store, seen).await).await,
            1,
            "{store}"
        );
        // No other process waits, so the cohort goes on after two passes.
        let bound = lock("cohort:bounded").cohort(BOUNDED);
        assert_eq!(grants(store, bound, "cohort:bounded", async |seen| bounded(store, seen).await).await, 1, "{store}");
    }
}

#[tokio::test]
async fn without_cohort_each_caller_has_a_grant_of_its_own() {
    installed();
    for store in ["memory", "redis"] {
        let lock = dlock::lock("cohort:default").backend(store);
        // Twelve, but for notes that were written in the same millisecond.
        assert!(grants(store, lock, "cohort:default", async |seen| default(store, seen).await).await > 1, "{store}");
    }
}

#[tokio::test]
async fn another_process_gets_the_lock_after_the_bound_of_the_cohort() {
    installed();
    for store in ["memory", "redis"] {
        let seen = Seen::default();
        let first = dlock::lock("cohort:bounded").backend(store).cohort(BOUNDED).acquire().await.unwrap();
        let members = join_all((0..8).map(|_| bounded(store, &seen)));
        let strange = async {
            let registry = stranger(store);
            let waits = registry.lock("cohort:bounded").backend(store).run(async |_| seen.lock().unwrap().len());
            let release = async {
                until_waiting(store, "cohort:bounded", 8).await;
                until_in_line(store, "cohort:bounded", 1).await;
                first.release().await.unwrap();
            };
            tokio::join!(waits, release).0.unwrap()
        };
        let (ends, before) = tokio::join!(members, strange);
        ends.into_iter().for_each(|end| end.unwrap());
        assert!(before <= 2, "{before} passes on {store} while somebody else waited");
    }
}

const BOUNDED: Option<Cohort> = Some(Cohort { passes: 2, span: Some(Duration::from_secs(3)) });
