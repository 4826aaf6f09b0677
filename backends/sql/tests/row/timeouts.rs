//! Waits for a row that the server ends: no deadlock, and nothing is left of them.

use std::time::Duration;

use dlock::{ErrorKind, Registry, Wait};
use dlock_testkit::wait_until;

use super::world::{World, registry};
use crate::row_kit::{Database, waiting};

row_lock_cases! {
    a_wait_that_runs_out_is_told_as_such_and_leaves_a_connection_that_is_used_again
}

async fn a_wait_that_runs_out_is_told_as_such_and_leaves_a_connection_that_is_used_again(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let guard = world.lock().acquire().await.unwrap();
    let before = waiting(&world.database).await;
    let error = other.lock("a").wait(Wait::UpTo(Duration::from_secs(1))).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::WaitTimeout, "{error}");
    // The server lists a statement for a moment after its answer. Without a limit of its own it would wait for 50 s at least.
    let ends = wait_until("its wait ends", async || waiting(&world.database).await == before);
    tokio::time::timeout(Duration::from_secs(40), ends).await.expect("it waits on").unwrap();
    // The connection of a caller that was refused is used again, and not with a transaction that has ended.
    let session = session_of_a_hold(&world, &other).await;
    let error = other.lock("a").wait(Wait::None).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(session_of_a_hold(&world, &other).await, session);
    guard.check().unwrap();
    guard.release().await.unwrap();
    other.lock("a").acquire().await.unwrap().release().await.unwrap();
}

async fn session_of_a_hold(world: &World, registry: &Registry) -> Vec<String> {
    let guard = registry.lock("b").acquire().await.unwrap();
    let session = world.database.lines("SELECT session FROM dlock_rows ORDER BY token DESC LIMIT 1").await;
    guard.release().await.unwrap();
    session
}
