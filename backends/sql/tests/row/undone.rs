//! Bodies that go on after the server has ended their transaction: they work without the row's lock, and must be told.

use std::time::Duration;

use dlock::Mode;
use sqlx::{AssertSqlSafe, Connection, Executor};

use super::world::{World, registry, run};
use crate::row_kit::{Database, finds_no_deadlock, is_deadlock, transaction, waiting_for};

row_lock_cases! {
    a_body_that_goes_on_after_a_deadlock_is_told
    a_body_that_goes_on_after_its_own_commit_is_told_and_writes_nothing
    a_body_that_goes_on_after_its_own_rollback_is_told_although_nobody_wants_the_row
    readers_behind_a_writer_whose_transaction_has_ended_hold
    a_statement_that_the_body_gives_up_is_no_panic_and_no_riddle
}

/// Long enough that no renewal tells of anything here by itself.
const TTL: Duration = Duration::from_secs(9);

async fn a_body_that_goes_on_after_a_deadlock_is_told(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    world.database.change("INSERT INTO data VALUES (1, 0), (2, 0)").await;
    // With the connection that it has, or asking for it again.
    for keeps in [true, false] {
        let guard = world.lock().ttl(TTL).acquire().await.unwrap();
        let held = guard.clone();
        let mut tx = transaction(&held).unwrap();
        let mut conn = tx.conn().await.unwrap();
        conn.execute("UPDATE data SET n = 1 WHERE id = 1").await.unwrap();
        // The server ends the one that has changed less, or that finds the circle.
        let mut rival = world.database.connect().await;
        let mut heavy = rival.begin().await.unwrap();
        finds_no_deadlock(&mut heavy).await;
        let many: Vec<_> = (10..200).map(|id| format!("({id}, 0)")).collect();
        heavy.execute(AssertSqlSafe(format!("INSERT INTO data VALUES {}", many.join(", ")))).await.unwrap();
        heavy.execute("UPDATE data SET n = 2 WHERE id = 2").await.unwrap();
        let waits = async { heavy.execute("UPDATE data SET n = 4 WHERE id = 1").await.unwrap() };
        let closes = async {
            waiting_for(&world.database, "n = 4").await;
            conn.execute("UPDATE data SET n = 3 WHERE id = 2").await
        };
        let (_, ended) = tokio::join!(waits, closes);
        assert!(is_deadlock(&ended.unwrap_err()));
        heavy.rollback().await.unwrap();
        let next = other.lock("a").ttl(TTL).acquire().await.unwrap();
        // The body has not looked at the error. What it writes now is in another transaction, or refused.
        let _ = conn.execute("INSERT INTO data VALUES (5, 0)").await;
        if keeps {
            assert!(held.confirm().await.unwrap_err().is_lost(), "it was not told");
            drop(conn);
        } else {
            drop(conn);
            assert!(tx.conn().await.unwrap_err().is_lost(), "it was not told");
        }
        drop(tx);
        assert!(guard.release().await.is_err());
        next.release().await.unwrap();
        assert_eq!(world.database.lines("SELECT n FROM data ORDER BY id").await, ["0", "0"]);
    }
}

async fn a_body_that_goes_on_after_its_own_commit_is_told_and_writes_nothing(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let guard = world.lock().ttl(TTL).acquire().await.unwrap();
    let held = guard.clone();
    let mut tx = transaction(&held).unwrap();
    run(&mut tx, "INSERT INTO data VALUES (1, 0)").await.unwrap();
    let mut conn = tx.conn().await.unwrap();
    conn.execute("COMMIT").await.unwrap();
    let next = other.lock("a").ttl(TTL).acquire().await.unwrap();
    assert!(conn.execute("INSERT INTO data VALUES (5, 0)").await.is_err(), "it has written without the lock");
    drop(conn);
    assert!(held.confirm().await.unwrap_err().is_lost(), "it was not told");
    next.release().await.unwrap();
    assert_eq!(world.data().await, ["1"]);
}

/// No later holder's record says it, and while the body keeps its connection the session cannot be asked: somebody must look
/// whether the row is locked.
async fn a_body_that_goes_on_after_its_own_rollback_is_told_although_nobody_wants_the_row(database: Database) {
    let world = World::new(database).await;
    let guard = world.lock().ttl(TTL).acquire().await.unwrap();
    let held = guard.clone();
    let mut tx = transaction(&held).unwrap();
    let mut conn = tx.conn().await.unwrap();
    held.confirm().await.unwrap();
    conn.execute("ROLLBACK").await.unwrap();
    assert!(held.confirm().await.unwrap_err().is_lost(), "it was not told");
    drop(conn);
    drop(tx);
    guard.release().await.unwrap_err();
}

/// The session of the writer lives on, and the tokens of readers are where its record was.
async fn readers_behind_a_writer_whose_transaction_has_ended_hold(database: Database) {
    let world = World::new(database).await;
    let other = registry(&world.database, &world.database.url()).await;
    let writer = world.lock().mode(Mode::Write).ttl(TTL).acquire().await.unwrap();
    let mut tx = transaction(&writer).unwrap();
    let mut conn = tx.conn().await.unwrap();
    conn.execute("ROLLBACK").await.unwrap();
    let read = || other.lock("a").mode(Mode::Read).ttl(TTL).acquire();
    let (one, _two) = (read().await.unwrap(), read().await.unwrap());
    let mut reading = transaction(&one).unwrap();
    let mut lent = reading.conn().await.unwrap();
    lent.execute("SELECT 1").await.unwrap();
    one.confirm().await.unwrap();
    assert_eq!(other.lock("a").holders().await.unwrap().holders.len(), 2);
    drop(conn);
    assert!(writer.confirm().await.unwrap_err().is_lost());
}

/// The client library may panic where an answer was half read.
async fn a_statement_that_the_body_gives_up_is_no_panic_and_no_riddle(database: Database) {
    let world = World::new(database).await;
    let rows: Vec<_> = (10..2000).map(|id| format!("({id}, {id})")).collect();
    world.database.change(&format!("INSERT INTO data VALUES {}", rows.join(", "))).await;
    for id in 10_000..10_060 {
        let body = async |held: dlock::Held| {
            let mut tx = transaction(&held)?;
            run(&mut tx, &format!("INSERT INTO data VALUES ({id}, 0)")).await?;
            let mut conn = tx.conn().await?;
            let pause = Duration::from_micros(fastrand::u64(0..3000));
            let _ =
                tokio::time::timeout(pause, conn.fetch_all("SELECT a.id, b.n FROM data a, data b LIMIT 20000")).await;
            drop(conn);
            if id % 2 == 0 { run(&mut tx, "SELECT 1").await } else { Ok(()) }
        };
        let done = world.lock().ttl(TTL).run_fallible(body).await;
        if let Err(error) = &done {
            let error = error.downcast_ref::<dlock::Error>().unwrap_or_else(|| panic!("{error}"));
            let fits = error.is_lost() || *error.kind() == dlock::ErrorKind::CommitRefused;
            assert!(fits, "{error}");
        }
        let is_there = world.data().await.contains(&id.to_string());
        assert_eq!(is_there, done.is_ok(), "{done:?}");
    }
}
