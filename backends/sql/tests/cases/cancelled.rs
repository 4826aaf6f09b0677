//! Callers that give up at any moment, as in a `select!`, on a store with two connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock::{Key, Registry};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, take};
use dlock_testkit::wait_until;
use futures::future::join_all;

use super::kit::{Database, TTL, key};
use crate::{named_kit, row_kit};

row_cases! {
    a_thousand_callers_of_lease_rows_that_give_up_leave_no_lock_and_no_connection_in_use
    a_thousand_callers_of_named_locks_that_give_up_leave_no_lock
    a_thousand_callers_of_row_locks_that_give_up_leave_no_lock_and_no_transaction
}

const KEYS: usize = 7;

/// A lock that was left would not be free by itself while a test waits for that.
const LONG: Duration = Duration::from_secs(600);

/// Each of a thousand calls ends after a random time: before its request, in it, in a wait, or in its body.
async fn give_up(registry: &Registry, longest: Duration) {
    let grants = &AtomicUsize::new(0);
    let (mut longest, mut rounds) = (longest, 20);
    while rounds > 0 {
        rounds -= 1;
        // On a busy machine no call would come as far as its body.
        if rounds == 0 && grants.load(Ordering::Relaxed) == 0 && longest < TTL {
            (longest, rounds) = (longest * 2, 5);
        }
        join_all((0..50).map(|number| async move {
            let body = async {
                if let Ok(guard) = registry.lock(Key::new().value(&(number % KEYS))).ttl(LONG).acquire().await {
                    grants.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
                    drop(guard);
                }
            };
            let limit = longest.mul_f64(fastrand::f64());
            let _ = tokio::time::timeout(limit, body).await;
        }))
        .await;
    }
    // Otherwise no call has given up in its body.
    assert!(grants.load(Ordering::Relaxed) > 0, "nobody was granted a lock");
}

fn registry_of(database: &Database, store: impl Backend) -> Registry {
    let registry = Registry::new();
    registry.install("sql", store).unwrap();
    let namespace = database.name.clone();
    registry.configure(|defaults| defaults.namespace = namespace.clone()).unwrap();
    registry
}

async fn a_thousand_callers_of_lease_rows_that_give_up_leave_no_lock_and_no_connection_in_use(database: Database) {
    let registry = registry_of(&database, database.store_with("max_connections=2").await);
    give_up(&registry, Duration::from_millis(8)).await;
    wait_until("nothing is held", async || database.held().await.is_empty()).await.unwrap();
    // Both connections are free again: two callers are served at once, and again.
    for _ in 0..4 {
        let both = [registry.lock("x").ttl(TTL), registry.lock("y").ttl(TTL)].map(|lock| lock.acquire());
        for guard in join_all(both).await {
            guard.unwrap().release().await.unwrap();
        }
    }
    registry.shutdown(Duration::from_secs(10)).await;
    wait_until("the connections are closed", async || database.sessions().await.is_empty()).await.unwrap();
}

async fn a_thousand_callers_of_named_locks_that_give_up_leave_no_lock(database: Database) {
    let registry = registry_of(&database, named_kit::open(&database).await);
    // A grant needs more messages than that of a row.
    give_up(&registry, Duration::from_millis(60)).await;
    all_are_free(&named_kit::open(&database).await, &database).await;
}

async fn a_thousand_callers_of_row_locks_that_give_up_leave_no_lock_and_no_transaction(database: Database) {
    let registry = registry_of(&database, row_kit::open(&database.url()).await.unwrap());
    give_up(&registry, Duration::from_millis(60)).await;
    let other = row_kit::open(&database.url()).await.unwrap();
    all_are_free(&other, &database).await;
    wait_until("no transaction is open", async || row_kit::open_transactions(&database).await == 0).await.unwrap();
}

/// Nobody holds one of the keys, and somebody else can.
async fn all_are_free(other: &impl Backend, database: &Database) {
    let names: Vec<_> = (0..KEYS).map(|number| key(database, &number.to_string())).collect();
    wait_until("nothing is held", async || {
        let states = join_all(names.iter().map(|name| other.look(name))).await;
        states.into_iter().all(|state| state.unwrap().holders.is_empty())
    })
    .await
    .unwrap();
    for name in &names {
        let hold = take(other, &claim_on(name, TTL, |_| ())).await;
        assert_eq!(other.release(&hold).await.unwrap(), Released::Released);
    }
}
