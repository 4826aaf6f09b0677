//! A limit of releases later than Debian's: one on the time of a whole transaction, which ends the session.

use std::time::Duration;

use dlock::Held;
use dlock_contract::{Backend, Released, Signal, Standing};
use dlock_testkit::holds::{confirm, token};
use dlock_testkit::servers::{Postgres, PostgresRelease};
use dlock_testkit::wait_until;

use crate::cases::wait_queue::{granted, hold_with_turn, join_queue};
use crate::kit::{Database, start};
use crate::row_cases::world::{World, run};
use crate::{named_kit, row_kit};

/// Longer than the limit.
const WORK: Duration = Duration::from_millis(1700);

/// One server for the three ways: each start costs more than the case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_account_end_no_hold_and_no_wait_of_any_way() {
    let server = start(Postgres { release: PostgresRelease::Eighteen, ..Postgres::default() }).await;
    let limited = async |case: &str| {
        let database = Database::create(&server.url(), case).await;
        // An opening on a busy machine pauses for less.
        for limit in ["transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"] {
            database.change(&format!("ALTER DATABASE {} SET {limit} = '1s'", database.name)).await;
        }
        // A limit that nothing meets would prove nothing.
        let mut conn = database.connect().await;
        let asleep = sqlx::raw_sql("BEGIN; SELECT pg_sleep(30)").execute(&mut conn).await.unwrap_err();
        assert_eq!(asleep.as_database_error().unwrap().code().unwrap(), "25P04", "{asleep}");
        database
    };
    let (queues, named, rows) = futures::join!(limited("queues"), limited("named"), limited("rows"));
    futures::join!(a_waiter_in_a_queue_is_served(queues), an_advisory_lock_stays(named), a_body_ends_its_work(rows));
}

async fn a_waiter_in_a_queue_is_served(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (_, wake) = join_queue(&database, &other, "a").await;
    let standing = database.waiting_sessions().await;
    tokio::time::sleep(WORK).await;
    let waits = wait_until("the waiter waits", async || database.waiting_sessions().await == standing).await;
    waits.expect("a limit has ended the wait");
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let next = granted(wake).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

async fn an_advisory_lock_stays(database: Database) {
    let (one, other) = (named_kit::open(&database).await, named_kit::open(&database).await);
    let (hold, waiting) = named_kit::held_and_waited_for(&database, [&one, &other]).await;
    tokio::time::sleep(WORK).await;
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a limit has ended the session");
    assert!(!waiting.is_finished(), "a limit has ended the wait");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let granted = waiting.await.unwrap().unwrap();
    assert!(matches!(granted, Signal::Granted(_)), "a limit has ended the wait");
}

async fn a_body_ends_its_work(database: Database) {
    let world = World::new(database).await;
    // Both kinds of time that a limit could end: that of a statement, and that between two.
    let body = async |held: Held| {
        let mut tx = row_kit::transaction(&held)?;
        run(&mut tx, &row_kit::SLEEP.replace('$', &WORK.as_secs_f64().to_string())).await?;
        tokio::time::sleep(WORK).await;
        run(&mut tx, "INSERT INTO data VALUES (1, 0)").await
    };
    world.lock().run_fallible(body).await.unwrap();
    assert_eq!(world.data().await, ["1"]);
}
