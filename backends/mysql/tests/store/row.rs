//! Row locks, as far as they are MySQL's and MariaDB's own.

use std::time::Duration;

use dlock::{ErrorKind, Held};
use dlock_contract::{Backend, BreakRecord, HoldId, Inspect};
use dlock_testkit::holds::take;
use sqlx::{Connection, Executor};

use crate::named_kit::TTL;
use crate::row_cases::world::{Failure, World, run};
use crate::row_kit::{Kind, SESSION, open, transaction};
use crate::server::Database;

row_lock_cases! {
    a_body_that_changes_a_tables_definition_is_told_that_it_may_have_committed
}

/// These servers commit before they change a table's definition, and refuse the change then: the session is in a transaction that
/// may not write.
async fn a_body_that_changes_a_tables_definition_is_told_that_it_may_have_committed(database: Database) {
    let world = World::new(database).await;
    let lock = || world.lock().ttl(Duration::from_secs(9));
    const CHANGE: &str = "ALTER TABLE data ADD COLUMN more INT";
    // By the error of the statement, or by the end of the call where the body does not look at that.
    for (id, looks) in [(1, true), (2, false)] {
        let body = async |held: Held| {
            let mut tx = transaction(&held)?;
            run(&mut tx, &format!("INSERT INTO data VALUES ({id}, 0)")).await?;
            let mut conn = tx.conn().await?;
            let refused = conn.execute(CHANGE).await.unwrap_err();
            assert!(conn.execute("INSERT INTO data VALUES (9, 0)").await.is_err(), "it has written without the lock");
            if looks { Err(conn.statement_error::<Failure>(refused)) } else { Ok(()) }
        };
        let error = lock().run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
        assert_eq!(*error.kind(), ErrorKind::CommitUnknown, "{error}");
        assert!(error.to_string().contains("may have committed it"), "{error}");
    }
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        let _ = run(&mut tx, CHANGE).await;
        run(&mut tx, "INSERT INTO data VALUES (9, 0)").await
    };
    let error = lock().run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    assert!(error.is_lost(), "{error}");
    world.until_free().await;
    assert_eq!(world.data().await, ["1", "2"]);
}

mod alone {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mariadb_ends_nobody_for_a_hold_of_the_server_before() {
        super::ends_nobody_for_a_hold_of_the_server_before(super::Kind::MariaDb).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql_ends_nobody_for_a_hold_of_the_server_before() {
        super::ends_nobody_for_a_hold_of_the_server_before(super::Kind::MySql).await;
    }
}

/// After a failover another server counts its sessions from one, so the number of a hold's session is somebody else's.
async fn ends_nobody_for_a_hold_of_the_server_before(kind: Kind) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "alone").await;
    let number = async |conn: &mut sqlx::MySqlConnection| {
        let (number,): (i64,) = sqlx::query_as(SESSION).fetch_one(conn).await.unwrap();
        number
    };
    // So that the number comes again after those that connect at once.
    for _ in 0..60 {
        database.connect().await.close().await.unwrap();
    }
    let store = open(&database.url()).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    let (its,): (i64,) =
        sqlx::query_as("SELECT session FROM dlock_rows").fetch_one(&mut database.connect().await).await.unwrap();
    tokio::task::block_in_place(|| {
        server.restart().unwrap();
        server.ask("SET GLOBAL server_id = 4711").unwrap();
    });
    // Those that have connected before that.
    database.end_sessions().await;
    let mut somebody = database.connect().await;
    while number(&mut somebody).await < its {
        somebody.close().await.unwrap();
        somebody = database.connect().await;
    }
    assert_eq!(number(&mut somebody).await, its, "nobody has its number: nothing is proven");
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(!store.break_hold(&hold.claim.key, HoldId::of(&hold.claim.owner), &record).await.unwrap());
    store.release(&hold).await.unwrap_err();
    somebody.execute("SELECT 1").await.expect("somebody else's session was ended");
}
