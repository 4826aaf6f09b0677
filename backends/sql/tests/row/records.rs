//! Records of holds that are written late, and a pool that is exhausted. No engine: each request is made by the test.

use std::sync::Arc;
use std::time::Duration;

use dlock::Result;
use dlock_contract::{Attempt, Backend, Claim, Mode, Queue, Standing};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::{Proxy, wait_until};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::task::JoinHandle;

use crate::row_kit::{Client, Database, Store, open, transaction_of, waiting_for};

row_lock_cases! {
    a_record_that_comes_late_leaves_that_of_the_next_holder
    a_record_that_waits_for_another_writer_leaves_that_of_the_next_holder
    a_hold_is_renewed_while_others_have_all_connections_of_the_pool
}

/// The server ends a session that is silent for so long. No test is that slow.
const TTL: Duration = Duration::from_secs(3600);

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
async fn exhaust(database: &Database, store: &Arc<Store>, somebody: &mut Client, round: &str) -> Option<Vec<Asking>> {
    // The rows of an earlier round hold no key of this one.
    let busy = BUSY.map(|key| format!("{key} {round}"));
    for key in &busy {
        let hold = take(&**store, &database.claim(key, TTL)).await;
        store.release(&hold).await.unwrap();
    }
    somebody.execute("BEGIN").await.unwrap();
    for key in &busy {
        // By the whole primary key, so that no record beside it is locked.
        let name = &database.claim(key, TTL).key;
        let record = format!("SELECT k FROM dlock_rows WHERE k = '{name}' AND part = '' FOR UPDATE");
        somebody.execute(AssertSqlSafe(record)).await.unwrap();
    }
    let asking = busy.each_ref().map(|key| ask(store, database.claim(key, TTL)));
    for (key, asking) in busy.iter().zip(&asking) {
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
    let Some(_busy) = exhaust(database, &far, &mut somebody, key).await else { return false };
    let mut late = ask(&far, database.claim(key, TTL));
    while !is_locked(database, key).await {
        if late.is_finished() {
            return false;
        }
    }
    // Its session ends with its lock, before its record is written.
    proxy.cut();
    let mut asking = ask(&near, database.claim(key, TTL));
    let next = tokio::select! {
        biased;
        // It has the lock again, over a new session.
        _ = &mut late => {
            asking.abort();
            return false;
        }
        next = &mut asking => next.unwrap().unwrap(),
    };
    let Attempt::Acquired(next) = next else { panic!("no hold") };
    somebody.execute("ROLLBACK").await.unwrap();
    let late = late.await.unwrap();
    assert!(late.is_err(), "a hold without a session: {late:?}");
    let state = near.look(&next.claim.key).await.unwrap();
    let holders: Vec<_> = state.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(holders, [Some(token(&next))], "the record of the holder is gone");
    somebody.close().await.unwrap();
    true
}

async fn a_record_that_waits_for_another_writer_leaves_that_of_the_next_holder(database: Database) {
    for (mode, name) in [(Mode::Exclusive, "one"), (Mode::Read, "shared")] {
        for is_there in [false, true] {
            let mut rounds = (0..ROUNDS).map(|round| format!("{name} {is_there} {round}"));
            loop {
                let key = rounds.next().expect("no record has waited: nothing is proven");
                if is_left_by_a_record_that_waits(&database, &key, mode, is_there).await {
                    break;
                }
            }
        }
    }
}

/// False if the record did not wait.
async fn is_left_by_a_record_that_waits(database: &Database, key: &str, mode: Mode, is_there: bool) -> bool {
    let claim = |key: &str| {
        let mut claim = Arc::unwrap_or_clone(database.claim(key, TTL));
        claim.mode = mode;
        Arc::new(claim)
    };
    let store = Arc::new(open(&database.url()).await.unwrap());
    let first = take(&*store, &claim(if is_there { key } else { "another" })).await;
    // The next hold of this store uses the same session.
    let session = format!("SELECT session FROM dlock_rows WHERE k = '{}' AND hold <> ''", first.claim.key);
    let session = database.lines(&session).await[0].parse().unwrap();
    store.release(&first).await.unwrap();
    // As the next holder would.
    let name = claim(key).key.clone();
    let write = match is_there {
        true => format!("UPDATE dlock_rows SET hold = 'next' WHERE k = '{name}' AND part = ''"),
        false => format!(
            "INSERT INTO dlock_rows (k, part, token, mode, session, xact, hold, note, long_key) \
             VALUES ('{name}', '', 1, 0, 0, 0, 'next', '', '{name}')"
        ),
    };
    let mut somebody = database.connect().await;
    somebody.execute("BEGIN").await.unwrap();
    somebody.execute(AssertSqlSafe(write)).await.unwrap();
    let mut late = ask(&store, claim(key));
    tokio::select! {
        // Of the statements about records, those that draw a token have this word.
        () = waiting_for(database, "GREATEST(") => {}
        _ = &mut late => return false,
    }
    database.kill(session).await;
    wait_until("its session has ended", async || !is_locked(database, key).await).await.unwrap();
    if late.is_finished() {
        return false;
    }
    somebody.execute("COMMIT").await.unwrap();
    somebody.close().await.unwrap();
    let late = late.await.unwrap();
    assert!(late.is_err(), "a hold without a session: {late:?}");
    let holder = database.lines(&format!("SELECT hold FROM dlock_rows WHERE k = '{name}' AND part = ''")).await;
    assert_eq!(holder, ["next"], "{key}: the record of the holder is gone");
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
    let Some(busy) = exhaust(database, &store, &mut somebody, key).await else { return false };
    assert!(matches!(confirm(&*store, &hold).await, Standing::Renewed(_)));
    let was_exhausted = busy.iter().any(|busy| !busy.is_finished());
    somebody.close().await.unwrap();
    was_exhausted
}
