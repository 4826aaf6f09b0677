//! Two calls that want the same rows in opposite order: one of them gives way, and its second run succeeds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock::{ErrorKind, Held, Key, Mode, Registry, Wait, optimistic};
use dlock_testkit::wait_until;
use sqlx::AssertSqlSafe;
use tokio::sync::Barrier;

use super::world::{Failure, World, insert, registry, run};
use crate::row_kit::{Database, is_deadlock, transaction, waiting};

row_lock_cases! {
    of_two_bodies_in_opposite_order_one_is_ended_and_run_again
    of_two_nested_locks_in_opposite_order_one_call_gives_way_and_is_run_again
    two_nested_calls_of_one_process_are_no_exception
    of_two_nested_readers_behind_writers_one_call_gives_way
    a_wait_inside_of_another_lock_is_no_deadlock
    an_error_of_a_statement_that_undid_nothing_stays_what_it_is
}

/// Long enough that neither a renewal nor the end of the wait ends anything here.
const LONG: Duration = Duration::from_secs(30);

/// How two calls meet: each has its first lock before one asks for its second.
struct Meeting {
    both_hold: Barrier,
    runs: AtomicU32,
}

impl Meeting {
    fn new() -> Self {
        Self { both_hold: Barrier::new(2), runs: AtomicU32::new(0) }
    }

    /// Only the first runs meet.
    fn begins(&self) -> bool {
        self.runs.fetch_add(1, Ordering::SeqCst) < 2
    }

    async fn meets(&self, is_first: bool) {
        if is_first {
            self.both_hold.wait().await;
        }
    }
}

async fn deadlocks<const N: usize>(registries: [&Registry; N]) -> u64 {
    let mut count = 0;
    for registry in registries {
        let health = registry.ready("rows").await.unwrap();
        count += health.counts.iter().find(|(what, _)| what.starts_with("deadlocks")).unwrap().1;
    }
    count
}

/// Moves 1 in the transaction of the first account's lock. Somebody who has the second one may wait for the first.
#[optimistic(retries = 3, backoff = "1ms..20ms")]
async fn transfer(registry: &Registry, from: u32, to: u32, meeting: &Meeting) -> Result<(), Failure> {
    let is_first = meeting.begins();
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, &format!("UPDATE data SET n = n - 1 WHERE id = {from}")).await?;
        meeting.meets(is_first).await;
        let mut conn = tx.conn().await?;
        let second = format!("UPDATE data SET n = n + 1 WHERE id = {to}");
        let done = sqlx::raw_sql(AssertSqlSafe(second)).execute(&mut *conn).await;
        done.map(drop).map_err(|error| conn.statement_error::<Failure>(error))
    };
    registry.lock(Key::text("account:").value(&from)).ttl(LONG).run_fallible(body).await
}

async fn of_two_bodies_in_opposite_order_one_is_ended_and_run_again(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    world.database.change("INSERT INTO data VALUES (1, 100), (2, 100)").await;
    let meeting = Meeting::new();
    let (one, two) = tokio::join!(transfer(&world.registry, 1, 2, &meeting), transfer(&other, 2, 1, &meeting));
    one.unwrap();
    two.unwrap();
    // On a busy machine the winner may not have ended yet when the other one comes again.
    let runs = u64::from(meeting.runs.into_inner());
    assert!((3..=5).contains(&runs), "one of them is ended once: {runs}");
    assert_eq!(world.database.lines("SELECT n FROM data ORDER BY id").await, ["100", "100"]);
    assert_eq!(deadlocks([&world.registry, &other]).await, runs - 2);
}

/// Works in its outer lock's transaction, and in that of another lock inside.
#[optimistic(retries = 3, backoff = "1ms..20ms")]
async fn nest(registry: &Registry, outer: &str, inner: &str, id: u32, meeting: &Meeting) -> Result<(), Failure> {
    let is_first = meeting.begins();
    let body = async |held: Held| {
        insert(held, id).await?;
        meeting.meets(is_first).await;
        let lock = registry.lock(Key::new().value(inner)).ttl(LONG).wait(Wait::UpTo(LONG));
        lock.run_fallible(|held| insert(held, id + 1)).await.map(drop)
    };
    registry.lock(Key::new().value(outer)).ttl(LONG).wait(Wait::UpTo(LONG)).run_fallible(body).await
}

async fn of_two_nested_locks_in_opposite_order_one_call_gives_way_and_is_run_again(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let gave_way = nest_in_opposite_order(&world, &world.registry, &other).await;
    assert_eq!(deadlocks([&world.registry, &other]).await, gave_way);
}

/// Readers do not wait for each other, but for writers that came before them, and these wait for the readers.
async fn of_two_nested_readers_behind_writers_one_call_gives_way(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let lock = |registry: &Registry, key: &'static str, mode| registry.lock(key).mode(mode).wait(Wait::UpTo(LONG * 4));
    // Both hold, and then both writers wait.
    let steps = [Barrier::new(3), Barrier::new(3)];
    let nested = async |registry: &Registry, outer: &'static str, inner: &'static str| {
        let body = async |_| {
            steps[0].wait().await;
            steps[1].wait().await;
            lock(registry, inner, Mode::Read).acquire().await.map(drop).map_err(|error| error.kind().clone())
        };
        lock(registry, outer, Mode::Read).run(body).await.unwrap()
    };
    let writing = async {
        steps[0].wait().await;
        let writers = ["a", "b"].map(|key| {
            let waits = lock(&world.registry, key, Mode::Write);
            tokio::spawn(async move { waits.acquire().await.unwrap().release().await.unwrap() })
        });
        wait_until("both writers wait", async || waiting(&world.database).await == 2).await.unwrap();
        steps[1].wait().await;
        futures::future::join_all(writers).await.into_iter().for_each(|written| written.unwrap());
    };
    let (one, two, ()) = futures::join!(nested(&world.registry, "a", "b"), nested(&other, "b", "a"), writing);
    let gave_way = [&one, &two].iter().filter(|ended| ***ended == Err(ErrorKind::Conflict)).count();
    let served = [&one, &two].iter().filter(|ended| ended.is_ok()).count();
    assert!(gave_way > 0 && gave_way + served == 2, "{one:?}, {two:?}");
}

/// Each wants a lock that a neighbour holds.
async fn two_nested_calls_of_one_process_are_no_exception(database: Database) {
    let world = World::new(database).await;
    let gave_way = nest_in_opposite_order(&world, &world.registry, &world.registry).await;
    assert_eq!(deadlocks([&world.registry]).await, gave_way);
}

/// Tells how often one of both gave way: once, or again if its second run is back before the other one goes on.
async fn nest_in_opposite_order(world: &World, one: &Registry, other: &Registry) -> u64 {
    let meeting = Meeting::new();
    let (one, two) = tokio::join!(nest(one, "a", "b", 10, &meeting), nest(other, "b", "a", 20, &meeting));
    one.unwrap();
    two.unwrap();
    let runs = meeting.runs.into_inner();
    assert!((3..=5).contains(&runs), "each ran, and one of them again: {runs} runs");
    // The writes of the run that gave way would be in the way of its second run.
    assert_eq!(world.data().await, ["10", "11", "20", "21"]);
    let told = "SELECT k FROM dlock_rows WHERE k LIKE '!waits:%'";
    assert_eq!(world.database.lines(told).await, [""; 0], "a wait that is over is still told");
    u64::from(runs) - 2
}

async fn a_wait_inside_of_another_lock_is_no_deadlock(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let inner = other.lock("b").ttl(LONG).acquire().await.unwrap();
    let body = async |_: Held| {
        let ends = async {
            // Until the wait is told to others, so that the look has been done.
            let told = "SELECT k FROM dlock_rows WHERE long_key <> '' AND k LIKE '!waits:%'";
            let is_told = async || !world.database.lines(told).await.is_empty();
            dlock_testkit::wait_until("the wait is told", is_told).await.unwrap();
            inner.release().await
        };
        let (guard, released) = tokio::join!(world.registry.lock("b").ttl(LONG).wait(Wait::UpTo(LONG)).acquire(), ends);
        released?;
        guard?.release().await
    };
    world.lock().ttl(LONG).run_fallible(body).await.unwrap();
    assert_eq!(deadlocks([&world.registry, &other]).await, 0);
}

async fn an_error_of_a_statement_that_undid_nothing_stays_what_it_is(database: Database) {
    let world = World::new(database).await;
    let guard = world.lock().acquire().await.unwrap();
    let mut tx = transaction(&guard).unwrap();
    let mut conn = tx.conn().await.unwrap();
    let error = sqlx::raw_sql("SELECT n FROM nowhere").execute(&mut *conn).await.unwrap_err();
    let error: Failure = conn.statement_error(error);
    assert!(!is_deadlock(error.downcast_ref().unwrap()));
}
