//! Row locks, as far as they are PostgreSQL's own.

use std::time::Duration;

use dlock::{ErrorKind, Held, Wait};
use dlock_testkit::servers::{PgBouncer, Postgres};
use dlock_testkit::wait_until;

use crate::kit::{Database, start};
use crate::row_cases::world::{Failure, World, registry, run};
use crate::row_kit::{open, transaction};

row_lock_cases! {
    a_deferred_constraint_refuses_the_commit
    a_commit_that_was_done_before_its_session_ended_is_known
    a_long_wait_waits_in_the_server_and_leaves_the_body_no_limit
}

async fn a_deferred_constraint_refuses_the_commit(database: Database) {
    let world = World::new(database).await;
    world
        .database
        .change("CREATE TABLE child (parent BIGINT REFERENCES data (id) DEFERRABLE INITIALLY DEFERRED)")
        .await;
    let orphan = async |held: Held| run(&mut transaction(&held)?, "INSERT INTO child VALUES (7)").await;
    let error = world.lock().run_fallible(orphan).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    assert_eq!(*error.kind(), ErrorKind::CommitRefused);
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(world.database.lines("SELECT parent FROM child").await, [""; 0]);
    world.lock().run_fallible(async |_| Ok::<_, Failure>(())).await.unwrap();
}

/// The server can tell what became of a transaction, so a commit whose answer was lost is no riddle.
async fn a_commit_that_was_done_before_its_session_ended_is_known(database: Database) {
    let world = World::new(database).await;
    world
        .database
        .change(
            "CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER leaving AFTER INSERT ON data DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION leave()",
        )
        .await;
    let body = async |held: Held| run(&mut transaction(&held)?, "INSERT INTO data VALUES (1, 0)").await;
    let error = world.lock().run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    // The session ended inside of the commit, and the server says that nothing was committed.
    assert_eq!(*error.kind(), ErrorKind::CommitRefused, "{error}");
    assert_eq!(world.data().await, [""; 0]);
}

/// The setting for it takes no more than 24.8 days, and has another value for the account.
async fn a_long_wait_waits_in_the_server_and_leaves_the_body_no_limit(database: Database) {
    database.change(&format!("ALTER DATABASE {} SET lock_timeout = '77s'", database.name)).await;
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let guard = world.lock().acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("a").wait(Wait::UpTo(Duration::from_secs(30 * 24 * 3600))).acquire());
    wait_until("it waits in the server", async || crate::row_kit::waiting(&world.database).await == 1).await.unwrap();
    guard.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    let mut tx = transaction(&held).unwrap();
    let limit: (String,) = sqlx::query_as("SHOW lock_timeout").fetch_one(&mut *tx.conn().await.unwrap()).await.unwrap();
    assert_eq!(limit.0, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_of_transactions_is_refused() {
    let server = start(Postgres::default()).await;
    let bouncer = start(PgBouncer::before(&server)).await;
    let error = open(&bouncer.url()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("pooler"), "{error}");
    open(&server.url()).await.unwrap();
}
