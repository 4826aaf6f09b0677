//! Processes that stand still while they wait for a turn, or while they have it. The server sees nothing of that.

use std::time::{Duration, Instant};

use dlock::{Key, LockKey, Registry, Wait};
use dlock_contract::{Backend, Released};
use dlock_sql::TURN_SILENCE;
use dlock_testkit::child::Child;
use dlock_testkit::holds::{claim_on, take, wait};
use dlock_testkit::{lateness, wait_until};

use super::kit::{Database, TTL, try_open};
use super::wait_queue::hold_with_turn;

row_cases! {
    a_waiter_that_stands_still_keeps_the_turn_for_a_moment_and_comes_back
    a_holder_that_stands_still_keeps_the_turn_for_its_ttl
    a_holder_that_lives_keeps_its_turn
    a_free_row_is_not_denied_while_a_waiter_that_stands_still_has_the_turn
}

/// The role of the child: it waits for the lock and keeps it.
pub(crate) const ROLE: &str = "waiter that stands still";
const KEY: &str = "a";
/// Only a hang comes near it.
const LIMIT: Duration = Duration::from_secs(60);

/// The child's part.
pub(crate) fn child() {
    let [url, namespace, ttl] = ["URL", "NAMESPACE", "TTL"].map(|name| std::env::var(name).unwrap());
    let ttl = Duration::from_secs(ttl.parse().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = try_open(&url).await.unwrap();
        let key = LockKey::new(&namespace, Key::new().value(KEY)).unwrap();
        println!("opened");
        let hold = wait(&store, &claim_on(&key, ttl, |_| ()), LIMIT).await;
        println!("held");
        std::future::pending::<()>().await;
        drop(hold);
    });
}

/// A process that waits in the queue, and its session.
async fn waiter(database: &Database, namespace: &str, ttl: Duration) -> (Child, String) {
    let ttl = ttl.as_secs().to_string();
    let variables = [("URL", &*database.url()), ("NAMESPACE", namespace), ("TTL", &*ttl)];
    let mut child = Child::spawn(ROLE, &variables).unwrap();
    hears(&mut child, "opened");
    wait_until("it waits", async || database.waiting_sessions().await.len() == 1).await.unwrap();
    let session = database.waiting_sessions().await.remove(0);
    (child, session)
}

fn hears(child: &mut Child, line: &str) {
    tokio::task::block_in_place(|| child.wait_line(line, LIMIT)).unwrap();
}

async fn until_the_turn_is_over(database: &Database, session: &str) {
    wait_until("the server ends the turn", async || !database.turn_sessions().await.iter().any(|one| one == session))
        .await
        .unwrap();
}

async fn a_waiter_that_stands_still_keeps_the_turn_for_a_moment_and_comes_back(database: Database) {
    let store = database.store().await;
    let hold = hold_with_turn(&database, &store, KEY).await;
    let (mut child, session) = waiter(&database, &database.name, TTL).await;
    child.stop().unwrap();
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    wait_until("it waits no longer", async || database.waiting_sessions().await.is_empty()).await.unwrap();
    until_the_turn_is_over(&database, &session).await;
    child.cont().unwrap();
    hears(&mut child, "held");
}

async fn a_holder_that_stands_still_keeps_the_turn_for_its_ttl(database: Database) {
    let store = database.store().await;
    let hold = hold_with_turn(&database, &store, KEY).await;
    let (mut child, session) = waiter(&database, &database.name, Duration::from_secs(4)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    hears(&mut child, "held");
    // A sign of life tells the server of the ttl. That it comes in time is what the next case tests.
    tokio::time::sleep(Duration::from_secs(1)).await;
    child.stop().unwrap();
    until_the_turn_is_over(&database, &session).await;
}

async fn a_holder_that_lives_keeps_its_turn(database: Database) {
    lateness::watch();
    let store = database.store().await;
    let hold = hold_with_turn(&database, &store, KEY).await;
    let (turn, started) = (database.turn_sessions().await, Instant::now());
    // The passing of the short limit is what is tested.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let verdict = lateness::verdict(started, TURN_SILENCE / 2);
    assert_eq!(database.turn_sessions().await, turn, "{verdict}");
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    // The session waits for the next turn, and may be silent again.
    wait_until("the turn is over", async || database.turn_sessions().await.is_empty()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(database.sessions().await.contains(&turn[0]), "an idle session was ended");
}

async fn a_free_row_is_not_denied_while_a_waiter_that_stands_still_has_the_turn(database: Database) {
    let registry = Registry::new();
    registry.install("rows", database.store().await).unwrap();
    let lock = |wait| registry.lock(Key::new().value(KEY)).ttl(TTL).wait(Wait::UpTo(wait));
    let defaults = registry.defaults();
    let namespace = &defaults.namespace;
    let other = database.store().await;
    let key = LockKey::new(namespace, Key::new().value(KEY)).unwrap();
    let before = take(&other, &claim_on(&key, TTL, |_| ())).await;
    // It has waited, so it knows that others want the lock, and joins the queue before it asks for the row.
    let waits = lock(LIMIT);
    let (guard, _) = tokio::join!(waits.acquire(), async {
        wait_until("it has the turn", async || database.turn_sessions().await.len() == 1).await.unwrap();
        other.release(&before).await.unwrap()
    });
    let (mut child, _) = waiter(&database, namespace, TTL).await;
    child.stop().unwrap();
    guard.unwrap().release().await.unwrap();
    for _ in 0..3 {
        lock(Duration::from_secs(1)).acquire().await.unwrap().release().await.unwrap();
    }
}
