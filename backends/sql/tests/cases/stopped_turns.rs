//! A process that stands still while it has the turn. The server sees nothing of that.

use std::time::{Duration, Instant};

use dlock::{Key, LockKey, Registry, Wait};
use dlock_contract::Backend;
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim_on, take, wait};
use dlock_testkit::{lateness, wait_until};

use super::kit::{Database, TTL, try_open};

row_cases! {
    a_free_row_is_not_denied_while_a_waiter_that_stands_still_has_the_turn
}

/// The role of the child: it waits for the lock.
pub(crate) const ROLE: &str = "waiter that stands still";
const KEY: &str = "a";
/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(60);

/// The child's part.
pub(crate) fn child() {
    let [url, namespace] = ["URL", "NAMESPACE"].map(|name| std::env::var(name).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = try_open(&url).await.unwrap();
        let key = LockKey::new(&namespace, Key::new().value(KEY)).unwrap();
        let hold = wait(&store, &claim_on(&key, TTL, |_| ()), LIMIT).await;
        std::future::pending::<()>().await;
        drop(hold);
    });
}

async fn a_free_row_is_not_denied_while_a_waiter_that_stands_still_has_the_turn(database: Database) {
    lateness::watch();
    let registry = Registry::new();
    registry.install("rows", database.store().await).unwrap();
    let lock = |wait| registry.lock(Key::new().value(KEY)).ttl(TTL).wait(Wait::UpTo(wait));
    let namespace = registry.defaults().namespace.clone();
    let other = database.store().await;
    let key = LockKey::new(&namespace, Key::new().value(KEY)).unwrap();
    for _ in 0..10 {
        let before = take(&other, &claim_on(&key, TTL, |_| ())).await;
        // It has waited, so it knows that others want the lock, and joins the queue before it asks for the row.
        let waits = lock(LIMIT);
        let (guard, _) = tokio::join!(waits.acquire(), async {
            wait_until("it has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
            other.release(&before).await.unwrap()
        });
        let mut child = Child::spawn(ROLE, &[("URL", &*database.url()), ("NAMESPACE", &*namespace)]).unwrap();
        wait_until("it waits", async || !database.waiting_sessions().await.is_empty()).await.unwrap();
        child.stop().unwrap();
        guard.unwrap().release().await.unwrap();
        wait_until("its wait ends", async || database.waiting_sessions().await.is_empty()).await.unwrap();
        // On PostgreSQL its wait may have ended by itself before.
        if database.turn_sessions().await.len() == 1 {
            for _ in 0..3 {
                let started = Instant::now();
                let acquired = lock(Duration::from_secs(2)).acquire().await;
                let verdict = lateness::verdict(started, Duration::from_millis(500));
                acquired.unwrap_or_else(|error| panic!("{error}: {verdict}")).release().await.unwrap();
            }
            assert_eq!(database.turn_sessions().await.len(), 1, "the stopped process has no turn: nothing is proven");
            return;
        }
    }
    panic!("no process was stopped in its turn: nothing is proven");
}
