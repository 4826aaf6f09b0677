//! Many callers that ask for one lock at the same time.

use std::sync::Arc;

use dlock_contract::Backend;
use dlock_testkit::holds::token;
use tokio::sync::Barrier;

use super::kit::{Database, Store, TTL};
use super::support::{EXPIRE, attempt};

row_cases! {
    fifty_askers_on_an_expired_row_have_one_winner_and_no_error
    fifty_askers_on_a_key_that_never_had_a_row_have_one_winner_and_no_error
}

const STORES: usize = 10;
/// Each on a connection of its own.
const ASKERS: usize = 5;
const ROUNDS: usize = 12;

async fn fifty_askers_on_an_expired_row_have_one_winner_and_no_error(database: Database) {
    let stores = crowd(&database).await;
    let mut last = 0;
    for _ in 0..ROUNDS {
        let won = all_ask(&database, &stores, "a").await;
        assert!(won > last, "{won} after {last}");
        last = won;
        database.change(EXPIRE).await;
    }
}

async fn fifty_askers_on_a_key_that_never_had_a_row_have_one_winner_and_no_error(database: Database) {
    let stores = crowd(&database).await;
    for round in 0..ROUNDS {
        all_ask(&database, &stores, &format!("key {round}")).await;
    }
    assert_eq!(database.held().await.len(), ROUNDS);
}

pub(crate) async fn crowd(database: &Database) -> Vec<Arc<Store>> {
    let mut stores = Vec::new();
    for _ in 0..STORES {
        let store = Arc::new(database.store_with(&format!("max_connections={ASKERS}")).await);
        // From now on the namespace's way is known, so that all askers begin with the row itself.
        store.release(&attempt(&store, &database.claim("first", TTL)).await.unwrap().unwrap()).await.unwrap();
        stores.push(store);
    }
    stores
}

/// Every asker asks once, at the same time. Returns the winner's token.
pub(crate) async fn all_ask(database: &Database, stores: &[Arc<Store>], text: &str) -> u64 {
    let together = Arc::new(Barrier::new(STORES * ASKERS));
    let asking = (0..STORES * ASKERS).map(|number| {
        let (store, claim) = (stores[number % STORES].clone(), database.claim(text, TTL));
        let together = together.clone();
        tokio::spawn(async move {
            together.wait().await;
            attempt(&store, &claim).await
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut winners = Vec::new();
    for one in asking {
        // An error is a deadlock or a timeout that came through.
        winners.extend(one.await.unwrap().unwrap());
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    token(&winners[0])
}
