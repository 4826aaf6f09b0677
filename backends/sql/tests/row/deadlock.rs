//! Two bodies that lock rows in opposite order: the server ends one of them, and a second run of it succeeds.

use std::sync::Arc;

use dlock::Held;
use tokio::sync::Barrier;

use super::world::{Failure, World, run};
use crate::row_kit::{Database, is_deadlock, transaction};

row_lock_cases! {
    of_two_bodies_in_opposite_order_one_is_ended_and_run_again
}

async fn of_two_bodies_in_opposite_order_one_is_ended_and_run_again(database: Database) {
    let world = World::new(database).await;
    world.database.change("INSERT INTO data VALUES (1, 100), (2, 100)").await;
    let met = Arc::new(Barrier::new(2));
    let mut calls = Vec::new();
    for (from, to) in [(1, 2), (2, 1)] {
        let (registry, met) = (world.registry.clone(), met.clone());
        calls.push(tokio::spawn(async move {
            let mut tries = 0;
            loop {
                tries += 1;
                let (met, is_first) = (met.clone(), tries == 1);
                let body = move |held: Held| async move {
                    let mut tx = transaction(&held)?;
                    run(&mut tx, &format!("UPDATE data SET n = n - 1 WHERE id = {from}")).await?;
                    if is_first {
                        // Both have their first row before one asks for its second.
                        met.wait().await;
                    }
                    run(&mut tx, &format!("UPDATE data SET n = n + 1 WHERE id = {to}")).await
                };
                match registry.lock(dlock::Key::text("account:").value(&from)).run_fallible(body).await {
                    Ok(()) => return tries,
                    Err(error) => assert!(ended_by_deadlock(&error), "{error}"),
                }
            }
        }));
    }
    let mut tries = 0;
    for call in calls {
        tries += call.await.unwrap();
    }
    assert_eq!(tries, 3, "one of them is ended once");
    assert_eq!(world.database.lines("SELECT n FROM data ORDER BY id").await, ["100", "100"]);
}

/// The body's own error wins; the loss of the lock that came with it may be told first.
fn ended_by_deadlock(error: &Failure) -> bool {
    match error.downcast_ref::<sqlx::Error>() {
        Some(error) => is_deadlock(error),
        None => error.downcast_ref::<dlock::Error>().is_some_and(dlock::Error::is_lost),
    }
}
