//! Ends of a hold from outside, in the middle of bodies.

use std::time::{Duration, Instant};

use dlock::{ErrorKind, Held};
use dlock_testkit::{Mode, Proxy, a_closed_store_opens_nothing, lateness};

use super::world::{Failure, World, insert, registry, run};
use crate::row_kit::{CAN_RELEASE, Database, SESSION, SLEEP, open, runs, transaction};

row_lock_cases! {
    a_killed_session_undoes_the_body_and_ends_it
    a_session_that_is_killed_while_its_statement_runs_is_told
    a_commit_over_a_dead_connection_does_nothing
    a_commit_without_an_answer_is_unknown
    a_caller_that_goes_away_rolls_back_although_its_statement_runs
    a_waiter_that_goes_away_leaves_no_waiter_in_the_server
    a_store_that_was_closed_opens_nothing
}

/// Long enough that no renewal tells of anything here.
const TTL: Duration = Duration::from_secs(30);
/// Longer than a test waits: what a caller that went away has left must not end by itself.
const LONG: Duration = Duration::from_secs(600);

async fn a_store_that_was_closed_opens_nothing(database: Database) {
    let (proxy, url) = Proxy::in_front_of(&database.url()).unwrap();
    a_closed_store_opens_nothing(&open(&url).await.unwrap(), &[proxy], &database.claim("a", TTL)).await;
}

async fn session_of(held: &Held) -> i64 {
    let mut tx = transaction(held).unwrap();
    let session: (i64,) = sqlx::query_as(SESSION).fetch_one(&mut *tx.conn().await.unwrap()).await.unwrap();
    session.0
}

async fn a_killed_session_undoes_the_body_and_ends_it(database: Database) {
    let world = World::new(database).await;
    let body = async |held: Held| {
        insert(held.clone(), 1).await?;
        world.database.kill(session_of(&held).await.unsigned_abs()).await;
        // The body is dropped here: nothing tells it but the loss.
        std::future::pending::<Result<(), Failure>>().await
    };
    lateness::watch();
    let began = Instant::now();
    let error = world.lock().ttl(TTL).run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    assert!(error.is_lost(), "{error}");
    // Later it might be told by a renewal.
    lateness::assert_within(TTL / 3, began, "the loss");
    world.until_free().await;
    assert_eq!(world.data().await, [""; 0]);
}

async fn a_session_that_is_killed_while_its_statement_runs_is_told(database: Database) {
    let world = World::new(database).await;
    let kill = async |held: Held| {
        let session = session_of(&held).await.unsigned_abs();
        let mut tx = transaction(&held)?;
        let sleeping = SLEEP.replace('$', "30");
        let (slept, ()) = tokio::join!(run(&mut tx, &sleeping), async {
            runs(&world.database, &sleeping).await;
            world.database.kill(session).await;
        });
        slept
    };
    assert!(world.lock().ttl(TTL).run_fallible(kill).await.is_err());
    world.until_free().await;
}

/// PostgreSQL says so. The others say nothing: a statement of the body could have committed and ended the session.
async fn a_commit_over_a_dead_connection_does_nothing(database: Database) {
    let world = World::new(database).await;
    let (proxy, url) = Proxy::in_front_of(&world.database.url()).unwrap();
    let far = registry(&world.database, &url).await;
    let body = async |held: Held| {
        insert(held, 1).await?;
        proxy.cut();
        Ok::<_, Failure>(())
    };
    let error = far.lock("a").ttl(TTL).run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    let kind = if CAN_RELEASE { ErrorKind::CommitUnknown } else { ErrorKind::CommitRefused };
    assert_eq!(*error.kind(), kind, "{error}");
    world.until_free().await;
    assert_eq!(world.data().await, [""; 0]);
    far.lock("a").run_fallible(|held| insert(held, 2)).await.unwrap();
    assert_eq!(world.data().await, ["2"]);
}

async fn a_commit_without_an_answer_is_unknown(database: Database) {
    let world = World::new(database).await;
    let (proxy, url) = Proxy::in_front_of(&world.database.url()).unwrap();
    let far = registry(&world.database, &url).await;
    let body = async |held: Held| {
        insert(held, 1).await?;
        proxy.set(Mode::BLACKHOLE);
        Ok::<_, Failure>(())
    };
    let error = far.lock("a").ttl(TTL).run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    // Whether the question before the commit had no answer, or the commit itself: it is never `Ok`.
    assert!(matches!(error.kind(), ErrorKind::CommitRefused | ErrorKind::CommitUnknown), "{error}");
    assert_eq!(world.data().await, [""; 0]);
    proxy.set(Mode::Pass);
    proxy.cut();
    world.until_free().await;
    assert_eq!(world.data().await, [""; 0]);
}

async fn a_caller_that_goes_away_rolls_back_although_its_statement_runs(database: Database) {
    let world = World::new(database).await;
    let (lock, sleeping) = (world.lock().ttl(LONG), SLEEP.replace('$', "600"));
    let statement = sleeping.clone();
    let call = tokio::spawn(lock.run_fallible(move |held| async move {
        insert(held.clone(), 1).await?;
        run(&mut transaction(&held)?, &statement).await
    }));
    runs(&world.database, &sleeping).await;
    lateness::watch();
    let began = Instant::now();
    call.abort();
    world.until_free().await;
    lateness::assert_within(Duration::from_secs(10), began, "the rollback");
    assert_eq!(world.data().await, [""; 0]);
}

async fn a_waiter_that_goes_away_leaves_no_waiter_in_the_server(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let guard = world.lock().ttl(LONG).acquire().await.unwrap();
    let before = crate::row_kit::waiting(&world.database).await;
    let waiter = tokio::spawn(other.lock("a").ttl(LONG).wait(dlock::Wait::UpTo(LONG)).acquire());
    let waits = async |count: usize| {
        let what = format!("{count} wait");
        let is_so = async || crate::row_kit::waiting(&world.database).await == before + count;
        dlock_testkit::wait_until(&what, is_so).await.unwrap();
    };
    waits(1).await;
    waiter.abort();
    waits(0).await;
    guard.release().await.unwrap();
    other.lock("a").acquire().await.unwrap().release().await.unwrap();
}
