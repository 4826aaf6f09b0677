//! Waits for a row that the server ends: no deadlock, and nothing is left of them.

use std::time::Duration;

use dlock::{ErrorKind, Wait};

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
    assert_eq!(waiting(&world.database).await, before, "it waits on");
    // Not with a transaction that has ended or has another row locked.
    other.lock("b").acquire().await.unwrap().release().await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
    other.lock("a").acquire().await.unwrap().release().await.unwrap();
}
