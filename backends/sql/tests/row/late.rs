//! A renewal and work that come late. No engine: each request is made by the test.

use std::time::Duration;

use dlock_contract::{Backend, BootInstant, Hold, Released, Signal, Standing};
use dlock_store::Clock;
use dlock_testkit::holds::{confirm, stand, take};
use dlock_testkit::{Mode, Proxy};
use sqlx::Executor;

use super::world::World;
use crate::row_kit::{Database, SLEEP, Store, open, transaction_of};

row_lock_cases! {
    work_that_begins_after_the_body_has_ended_is_told_by_the_release
    a_commit_waits_for_a_slow_renewal
    a_hold_that_was_waited_for_counts_from_a_request_that_was_answered
    a_session_that_could_not_be_ended_is_ended_by_the_next_release
    a_lent_connection_counts_from_what_its_own_session_has_said
    a_waiter_whose_host_is_silent_keeps_the_row_for_no_ttl
}

const TTL: Duration = Duration::from_secs(9);

async fn work_that_begins_after_the_body_has_ended_is_told_by_the_release(database: Database) {
    let world = World::new(database).await;
    let store = open(&world.database.url()).await.unwrap();
    let claim = world.database.claim("b", TTL);
    for works in [false, true] {
        let hold = take(&store, &claim).await;
        assert!(!store.settle().unwrap().has_work(&hold));
        if works {
            let mut tx = transaction_of(&hold).unwrap();
            tx.conn().await.unwrap().execute("INSERT INTO data VALUES (1, 0)").await.unwrap();
        }
        let released = store.release(&hold).await;
        assert_eq!(released.as_ref().ok(), (!works).then_some(&Released::Released), "{released:?}");
        assert_eq!(world.data().await, [""; 0]);
    }
    take(&store, &world.database.claim("b", TTL)).await;
}

async fn a_commit_waits_for_a_slow_renewal(database: Database) {
    let world = World::new(database).await;
    let (proxy, url) = Proxy::in_front_of(&world.database.url()).unwrap();
    let far = open(&url).await.unwrap();
    let hold = take(&far, &world.database.claim("b", TTL)).await;
    let mut tx = transaction_of(&hold).unwrap();
    tx.conn().await.unwrap().execute("INSERT INTO data VALUES (1, 0)").await.unwrap();
    drop(tx);
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: Duration::from_millis(400) });
    let (settle, sent) = (far.settle().unwrap(), proxy.sent());
    let (_, settled) = tokio::join!(confirm(&far, &hold), async {
        dlock_testkit::wait_until("the renewal is sent", async || proxy.sent() > sent).await.unwrap();
        settle.settle(&hold).await
    });
    settled.unwrap();
    assert_eq!(world.data().await, ["1"]);
}

async fn a_hold_that_was_waited_for_counts_from_a_request_that_was_answered(database: Database) {
    let near = open(&database.url()).await.unwrap();
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let far = open(&url).await.unwrap();
    // So that its record is one request later, and not two with the first preparation of the statement.
    far.release(&take(&far, &database.claim("warm", TTL)).await).await.unwrap();
    let before = take(&near, &database.claim("b", TTL)).await;
    let waiting = stand(&far, &database.claim("b", TTL)).await.signal.unwrap();
    let waiting = tokio::spawn(waiting);
    dlock_testkit::wait_until("it waits", async || crate::row_kit::waiting(&database).await == 1).await.unwrap();
    let delay = Duration::from_millis(300);
    proxy.set(Mode::Delay { to_server: Duration::ZERO, to_client: delay });
    near.release(&before).await.unwrap();
    let Signal::Granted(hold) = waiting.await.unwrap().unwrap() else { panic!("no hold") };
    // The answer to the request that it counts from, and then that to its record. By the time of the answer alone nobody could
    // tell how old that was.
    let age = Clock::system().now().since(hold.validity.from);
    assert!(age >= 2 * delay, "it counts from an answer, {age:?} ago");
}

async fn a_session_that_could_not_be_ended_is_ended_by_the_next_release(database: Database) {
    let near = open(&database.url()).await.unwrap();
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let far = open(&url).await.unwrap();
    let hold = take(&far, &database.claim("b", TTL)).await;
    proxy.set(Mode::BLACKHOLE);
    far.release(&hold).await.unwrap_err();
    // The server sees nothing of the end of the old connections.
    proxy.set(Mode::Pass);
    // The first answer has said that nobody knows whether it was held to the end. This one says that the row is free.
    assert_eq!(far.release(&hold).await.unwrap(), Released::Released);
    take(&near, &database.claim("b", TTL)).await;
}

/// The server counts the silence of a session from its last answer, whatever it says of that session to others.
async fn a_lent_connection_counts_from_what_its_own_session_has_said(database: Database) {
    let world = World::new(database).await;
    let store = open(&world.database.url()).await.unwrap();
    let hold = take(&store, &world.database.claim("b", TTL)).await;
    let mut tx = transaction_of(&hold).unwrap();
    let mut conn = tx.conn().await.unwrap();
    // In the middle of a statement, and after many short ones, the hold is prolonged by the next renewals.
    let sleep = SLEEP.replace('$', "4");
    let sleeping = conn.execute(sqlx::AssertSqlSafe(sleep));
    let asked = Clock::system().now();
    let (_, ()) = tokio::join!(sleeping, until_from(&store, &hold, asked));
    let asked = Clock::system().now();
    tokio::select! {
        () = until_from(&store, &hold, asked) => {}
        () = async {
            loop {
                conn.execute("SELECT 1").await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        } => {}
    }
    // No statement is under way from here on.
    conn.execute("SELECT 1").await.unwrap();
    let answered = Clock::system().now();
    for _ in 0..8 {
        let from = from(&store, &hold).await;
        assert!(from <= answered, "it counts from {:?} after the last answer of its session", from.since(answered));
    }
    drop(conn);
    // Its own session is asked again.
    until_from(&store, &hold, answered).await;
}

async fn from(store: &Store, hold: &Hold) -> BootInstant {
    match confirm(store, hold).await {
        Standing::Renewed(validity) => validity.from,
        Standing::Lost => panic!("it is lost"),
    }
}

async fn until_from(store: &Store, hold: &Hold, asked: BootInstant) {
    dlock_testkit::wait_until("it is prolonged", async || from(store, hold).await > asked).await.unwrap();
}

/// The server grants the row to each of them in turn, and does not see that nobody is there.
async fn a_waiter_whose_host_is_silent_keeps_the_row_for_no_ttl(database: Database) {
    const HOUR: Duration = Duration::from_secs(3600);
    let near = open(&database.url()).await.unwrap();
    let before = take(&near, &database.claim("b", HOUR)).await;
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    let far = open(&url).await.unwrap();
    let mut silent = Vec::new();
    for count in 1..=2 {
        silent.push(tokio::spawn(stand(&far, &database.claim("b", HOUR)).await.signal.unwrap()));
        let waits = async || crate::row_kit::waiting(&database).await == count;
        dlock_testkit::wait_until("it waits", waits).await.unwrap();
    }
    proxy.set(Mode::BLACKHOLE);
    near.release(&before).await.unwrap();
    let other = open(&database.url()).await.unwrap();
    let next = async || {
        let asked = other.try_acquire(&database.claim("b", HOUR), dlock_contract::Queue::Leave).await;
        matches!(asked, Ok(dlock_contract::Attempt::Acquired(_)))
    };
    dlock_testkit::wait_until("the row is free", next).await.unwrap();
    // One that is there keeps it for the whole ttl.
    let hold = take(&near, &database.claim("c", TTL)).await;
    let waiting = tokio::spawn(stand(&other, &database.claim("c", HOUR)).await.signal.unwrap());
    dlock_testkit::wait_until("it waits", async || crate::row_kit::waiting(&database).await == 1).await.unwrap();
    near.release(&hold).await.unwrap();
    let Signal::Granted(hold) = waiting.await.unwrap().unwrap() else { panic!("no hold") };
    // The passing of the short limit is what is tested.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(matches!(confirm(&other, &hold).await, Standing::Renewed(_)));
    silent.iter().for_each(tokio::task::JoinHandle::abort);
}
