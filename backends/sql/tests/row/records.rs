//! Records of holds that are written late, and a pool that is exhausted. No engine: each request is made by the test.

use std::sync::Arc;
use std::time::Duration;

use dlock::Result;
use dlock_contract::{Attempt, Backend, Claim, Queue, Standing};
use dlock_testkit::Proxy;
use dlock_testkit::holds::{confirm, take, token};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::task::JoinHandle;

use crate::row_kit::{Client, Database, Store, open, transaction_of};

row_lock_cases! {
    a_record_that_comes_late_leaves_that_of_the_next_holder
    a_hold_is_renewed_while_others_have_all_connections_of_the_pool
}

const TTL: Duration = Duration::from_secs(9);

/// A store's only connection for records waits for a second for each of these.
const BUSY: [&str; 3] = ["busy1", "busy2", "busy3"];

/// How often a test that came too late begins anew.
const ROUNDS: u32 = 10;

type Asking = JoinHandle<Result<Attempt>>;

async fn with_one_connection(url: &str) -> Arc<Store> {
    Arc::new(open(&format!("{url}?way=row&max_connections=1")).await.unwrap())
}

fn ask(store: &Arc<Store>, claim: Arc<Claim>) -> Asking {
    let store = store.clone();
    tokio::spawn(async move {
        loop {
            match store.try_acquire(&claim, Queue::Leave).await {
                // The look whether the row is locked locks it for a moment.
                Ok(Attempt::Contended(_)) => {}
                answer => return answer,
            }
        }
    })
}

async fn is_locked(database: &Database, key: &str) -> bool {
    let claim = database.claim(key, TTL);
    let free = format!("SELECT k FROM dlock_row_keys WHERE k = '{}' FOR UPDATE SKIP LOCKED", claim.key);
    database.lines(&free).await.is_empty()
}

/// Keeps the records of these keys locked by somebody's transaction, and makes the store wait for them. `None`: it has waited
/// for one of them before this has seen all of them wait, as on a busy machine.
async fn exhaust(database: &Database, store: &Arc<Store>, somebody: &mut Client) -> Option<Vec<Asking>> {
    for key in BUSY {
        let hold = take(&**store, &database.claim(key, TTL)).await;
        store.release(&hold).await.unwrap();
    }
    somebody.execute("BEGIN").await.unwrap();
    for key in BUSY {
        // By the whole primary key, so that no record beside it is locked.
        let name = &database.claim(key, TTL).key;
        let record = format!("SELECT k FROM dlock_rows WHERE k = '{name}' AND part = '' FOR UPDATE");
        somebody.execute(AssertSqlSafe(record)).await.unwrap();
    }
    let asking = BUSY.map(|key| ask(store, database.claim(key, TTL)));
    for (key, asking) in BUSY.into_iter().zip(&asking) {
        while !is_locked(database, key).await {
            if asking.is_finished() {
                return None;
            }
        }
    }
    Some(asking.into())
}

async fn a_record_that_comes_late_leaves_that_of_the_next_holder(database: Database) {
    for round in 0..ROUNDS {
        if is_left_by_a_late_record(&database, &format!("a{round}")).await {
            return;
        }
    }
    panic!("no record was late: nothing is proven");
}

/// False if the record was not late.
async fn is_left_by_a_late_record(database: &Database, key: &str) -> bool {
    let near = Arc::new(open(&database.url()).await.unwrap());
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let far = with_one_connection(&url).await;
    let first = take(&*near, &database.claim(key, TTL)).await;
    near.release(&first).await.unwrap();
    let mut somebody = database.connect().await;
    let Some(_busy) = exhaust(database, &far, &mut somebody).await else { return false };
    let late = ask(&far, database.claim(key, TTL));
    while !is_locked(database, key).await {
        if late.is_finished() {
            return false;
        }
    }
    // Its session ends with its lock, before its record is written.
    proxy.cut();
    let Attempt::Acquired(next) = ask(&near, database.claim(key, TTL)).await.unwrap().unwrap() else {
        panic!("no hold")
    };
    if late.is_finished() {
        return false;
    }
    somebody.execute("ROLLBACK").await.unwrap();
    let late = late.await.unwrap();
    assert!(late.is_err(), "a hold without a session: {late:?}");
    let state = near.look(&next.claim.key).await.unwrap();
    let holders: Vec<_> = state.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(holders, [Some(token(&next))], "the record of the holder is gone");
    somebody.close().await.unwrap();
    true
}

async fn a_hold_is_renewed_while_others_have_all_connections_of_the_pool(database: Database) {
    for round in 0..ROUNDS {
        if is_renewed_without_the_pool(&database, &format!("a{round}")).await {
            return;
        }
    }
    panic!("the pool was not exhausted: nothing is proven");
}

/// False if the pool was not exhausted.
async fn is_renewed_without_the_pool(database: &Database, key: &str) -> bool {
    let store = with_one_connection(&database.url()).await;
    let hold = take(&*store, &database.claim(key, TTL)).await;
    let mut tx = transaction_of(&hold).unwrap();
    let mut conn = tx.conn().await.unwrap();
    conn.execute("SELECT 1").await.unwrap();
    let mut somebody = database.connect().await;
    let Some(busy) = exhaust(database, &store, &mut somebody).await else { return false };
    assert!(matches!(confirm(&*store, &hold).await, Standing::Renewed(_)));
    let was_exhausted = busy.iter().any(|busy| !busy.is_finished());
    somebody.close().await.unwrap();
    was_exhausted
}
