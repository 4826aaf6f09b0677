//! Bodies that work inside of their lock's transaction.

use std::time::Duration;

use dlock::{ErrorKind, Held};
use sqlx::{Connection, Executor};

use super::world::{Failure, World, insert, run};
use crate::row_kit::{CAN_RELEASE, Database, MAKE_WRITABLE, SESSION, SLEEP, transaction};

row_lock_cases! {
    a_body_commits_with_its_lock
    a_body_that_does_not_succeed_is_rolled_back
    a_guard_commits_by_its_release
    a_transaction_has_one_handle_and_none_after_the_end
    what_the_client_library_begins_inside_is_a_savepoint
    a_body_that_ends_the_transaction_itself_fails
    a_body_that_chains_the_next_transaction_is_told_before_it_has_the_connection_again
    a_body_that_makes_its_session_writable_is_told_before_it_has_the_connection_again
    a_call_that_cannot_see_the_result_undoes_the_work
    a_lock_of_another_store_has_no_transaction
    a_body_without_a_statement_for_longer_than_the_ttl_goes_on
    a_statement_of_three_ttls_is_no_loss
    each_hold_has_a_higher_token_also_after_a_rollback
    nothing_of_a_body_s_session_is_left_to_the_next_body
}

fn failure() -> Failure {
    "the body's own".into()
}

async fn a_body_commits_with_its_lock(database: Database) {
    let world = World::new(database).await;
    for id in 0..3 {
        assert_eq!(world.lock().run_fallible(|held| insert(held, id)).await.unwrap(), id);
        world.until_free().await;
    }
    assert_eq!(world.data().await, ["0", "1", "2"]);
}

async fn a_body_that_does_not_succeed_is_rolled_back(database: Database) {
    let world = World::new(database).await;
    let fails = async |held: Held| {
        insert(held, 1).await?;
        Err::<(), _>(failure())
    };
    assert_eq!(world.lock().run_fallible(fails).await.unwrap_err().to_string(), "the body's own");
    let endless = async |held: Held| {
        insert(held, 2).await?;
        std::future::pending::<Result<(), Failure>>().await
    };
    let error = world.lock().timeout(Duration::from_millis(300)).run_fallible(endless).await.unwrap_err();
    assert_eq!(*error.downcast::<dlock::Error>().unwrap().kind(), ErrorKind::BodyTimeout);
    let panics = async |held: Held| -> Result<(), Failure> {
        insert(held, 3).await?;
        panic!("of the body")
    };
    let call = std::panic::AssertUnwindSafe(world.lock().run_fallible(panics));
    assert!(futures::FutureExt::catch_unwind(call).await.is_err());
    let guard = world.lock().acquire().await.unwrap();
    insert(guard.clone(), 4).await.unwrap();
    drop(guard);
    world.until_free().await;
    assert_eq!(world.data().await, [""; 0]);
}

async fn a_guard_commits_by_its_release(database: Database) {
    let world = World::new(database).await;
    let guard = world.lock().acquire().await.unwrap();
    insert(guard.clone(), 1).await.unwrap();
    assert_eq!(world.data().await, [""; 0], "it was committed before the release");
    guard.release().await.unwrap();
    assert_eq!(world.data().await, ["1"]);
}

async fn a_transaction_has_one_handle_and_none_after_the_end(database: Database) {
    let world = World::new(database).await;
    let guard = world.lock().acquire().await.unwrap();
    let held = guard.clone();
    let first = transaction(&held).unwrap();
    let second = transaction(&held).unwrap_err();
    assert_eq!(*second.kind(), ErrorKind::WouldDeadlock, "{second}");
    assert!(second.key().is_some() && second.backend() == Some("rows"));
    drop(first);
    let mut third = transaction(&held).unwrap();
    run(&mut third, "INSERT INTO data VALUES (1, 0)").await.unwrap();
    guard.release().await.unwrap();
    assert!(run(&mut third, "INSERT INTO data VALUES (2, 0)").await.is_err());
    drop(third);
    assert!(transaction(&held).unwrap_err().is_lost());
    assert_eq!(world.data().await, ["1"]);
}

async fn what_the_client_library_begins_inside_is_a_savepoint(database: Database) {
    let world = World::new(database).await;
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        let mut conn = tx.conn().await?;
        for (id, commits) in [(1, true), (2, false)] {
            let mut inner = conn.begin().await?;
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("INSERT INTO data VALUES ({id}, 0)")))
                .execute(&mut *inner)
                .await?;
            if commits {
                inner.commit().await?;
            }
        }
        drop(conn);
        assert_eq!(world.data().await, [""; 0], "the inner transaction has ended the outer one");
        held.confirm().await?;
        Ok::<_, Failure>(())
    };
    world.lock().run_fallible(body).await.unwrap();
    assert_eq!(world.data().await, ["1"]);
    // The connection is used again.
    world.lock().run_fallible(|held| insert(held, 3)).await.unwrap();
    assert_eq!(world.data().await, ["1", "3"]);
}

async fn a_body_that_ends_the_transaction_itself_fails(database: Database) {
    let world = World::new(database).await;
    let release = [(4, "COMMIT RELEASE")].into_iter().filter(|_| CAN_RELEASE);
    for (id, end) in [(1, "COMMIT"), (2, "ROLLBACK"), (3, "COMMIT AND CHAIN")].into_iter().chain(release) {
        let body = async |held: Held| {
            let mut tx = transaction(&held)?;
            run(&mut tx, &format!("INSERT INTO data VALUES ({id}, 0)")).await?;
            run(&mut tx, end).await
        };
        let error = world.lock().run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
        // It must not say that nothing stays, where something does.
        let fits = match error.kind() {
            ErrorKind::CommitUnknown => true,
            ErrorKind::CommitRefused => end == "ROLLBACK",
            _ => error.is_lost(),
        };
        assert!(fits, "{end}: {error}");
    }
    world.until_free().await;
    assert_eq!(world.data().await, if CAN_RELEASE { vec!["1", "3", "4"] } else { vec!["1", "3"] });
}

/// The session's other transactions are read-only, but a chained one is as the one before.
async fn a_body_that_chains_the_next_transaction_is_told_before_it_has_the_connection_again(database: Database) {
    let world = World::new(database).await;
    let other = super::world::registry(&world.database, &world.database.url()).await;
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, "INSERT INTO data VALUES (1, 0)").await?;
        run(&mut tx, "COMMIT AND CHAIN").await?;
        other.lock("a").acquire().await?.release().await?;
        let error = tx.conn().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        Err::<(), Failure>(error.into())
    };
    assert!(world.lock().run_fallible(body).await.is_err());
    world.until_free().await;
    assert_eq!(world.data().await, ["1"]);
}

/// A transaction behind the one with the lock may write then, and the server refuses nothing.
async fn a_body_that_makes_its_session_writable_is_told_before_it_has_the_connection_again(database: Database) {
    let world = World::new(database).await;
    let ends = ["COMMIT"].into_iter().chain(CAN_RELEASE.then_some("CREATE TABLE other (id INT)"));
    for (id, end) in (1..).zip(ends) {
        let body = async |held: Held| {
            let mut tx = transaction(&held)?;
            run(&mut tx, MAKE_WRITABLE).await?;
            run(&mut tx, &format!("INSERT INTO data VALUES ({id}, 0)")).await?;
            run(&mut tx, end).await?;
            let error = tx.conn().await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            Err::<(), Failure>(error.into())
        };
        assert!(world.lock().run_fallible(body).await.is_err());
        world.until_free().await;
    }
    let before = world.data().await;
    assert_eq!(before, if CAN_RELEASE { vec!["1", "2"] } else { vec!["1"] });
    let keeps_its_connection = async |held: Held| {
        let mut tx = transaction(&held)?;
        let mut conn = tx.conn().await?;
        for sql in [MAKE_WRITABLE, "COMMIT", "BEGIN", "INSERT INTO data VALUES (9, 0)"] {
            conn.execute(sql).await?;
        }
        Ok::<_, Failure>(())
    };
    let error = world.lock().run_fallible(keeps_its_connection).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    assert_eq!(*error.kind(), ErrorKind::CommitUnknown, "{error}");
    world.until_free().await;
    assert_eq!(world.data().await, before, "it has written without the lock");
}

async fn a_call_that_cannot_see_the_result_undoes_the_work(database: Database) {
    let world = World::new(database).await;
    let error = world.lock().run(|held| insert(held, 1)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::CommitRefused);
    world.lock().run(|_| async {}).await.unwrap();
    assert_eq!(world.data().await, [""; 0]);
}

async fn a_lock_of_another_store_has_no_transaction(database: Database) {
    let world = World::new(database).await;
    world.registry.install("lease", crate::row_kit::lease(&world.database.url()).await).unwrap();
    let guard = world.registry.lock("b").backend("lease").acquire().await.unwrap();
    let error = transaction(&guard).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }) && error.to_string().contains("way=row"), "{error}");
    assert!(error.to_string().contains("lease"), "{error}");
}

const SECOND: Duration = Duration::from_secs(1);

async fn a_body_without_a_statement_for_longer_than_the_ttl_goes_on(database: Database) {
    let world = World::new(database).await;
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, "INSERT INTO data VALUES (1, 0)").await?;
        // The passing of the ttl is what is tested.
        tokio::time::sleep(4 * SECOND).await;
        run(&mut tx, "INSERT INTO data VALUES (2, 0)").await
    };
    world.lock().ttl(3 * SECOND).run_fallible(body).await.unwrap();
    assert_eq!(world.data().await, ["1", "2"]);
}

async fn a_statement_of_three_ttls_is_no_loss(database: Database) {
    let world = World::new(database).await;
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, &SLEEP.replace('$', "6.4")).await?;
        run(&mut tx, "INSERT INTO data VALUES (1, 0)").await
    };
    world.lock().ttl(2 * SECOND).run_fallible(body).await.unwrap();
    assert_eq!(world.data().await, ["1"]);
}

async fn each_hold_has_a_higher_token_also_after_a_rollback(database: Database) {
    let world = World::new(database).await;
    let (mut last, mut sessions) = (0, Vec::new());
    for commits in [true, false, true, false] {
        let guard = world.lock().acquire().await.unwrap();
        let token = guard.fence().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        insert(guard.clone(), u32::from(commits)).await.unwrap();
        let mut tx = transaction(&guard).unwrap();
        let session: (i64,) = sqlx::query_as(SESSION).fetch_one(&mut *tx.conn().await.unwrap()).await.unwrap();
        run(&mut tx, "DELETE FROM data").await.unwrap();
        drop(tx);
        sessions.push(session);
        if commits {
            guard.release().await.unwrap()
        } else {
            drop(guard)
        }
        world.until_free().await;
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 4, "a body has the session of another one");
}

async fn nothing_of_a_body_s_session_is_left_to_the_next_body(database: Database) {
    let world = World::new(database).await;
    for commits in [true, false] {
        let body = async |held: Held| {
            run(&mut transaction(&held)?, "CREATE TEMPORARY TABLE secret (id INT)").await?;
            if commits { Ok(()) } else { Err(failure()) }
        };
        let done = world.lock().run_fallible(body).await;
        assert_eq!(done.is_ok(), commits, "{done:?}");
        for _ in 0..3 {
            let other = async |held: Held| run(&mut transaction(&held)?, "SELECT id FROM secret").await;
            let error = world.registry.lock("other").run_fallible(other).await.unwrap_err();
            assert!(error.downcast_ref::<sqlx::Error>().is_some(), "the table is there, or {error}");
        }
    }
}
