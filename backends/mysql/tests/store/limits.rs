//! Limits of the server on a statement, on a transaction and on silence. Each of them would end a wait, a hold or a body's work.

use std::time::Duration;

use dlock::{ErrorKind, Held, Key};
use dlock_contract::{Backend, Released, Signal, Standing};
use dlock_testkit::holds::{confirm, stand, take, token};
use dlock_testkit::servers::{Instance, MariaDb, MySql};
use dlock_testkit::wait_until;
use sqlx::{AssertSqlSafe, Executor};

use crate::lease::cases::wait_queue::{granted, hold_with_turn, join_queue};
use crate::named_kit::{TTL, open};
use crate::row::wait_in_vain;
use crate::row_cases::world::{Failure, World, registry, run};
use crate::row_kit::{SESSION, transaction};
use crate::server::{Database, Kind};

mod alone {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn limits_of_mariadb_end_no_hold_and_no_wait_of_any_way() {
        super::limits_end_no_hold_and_no_wait(super::Kind::MariaDb).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn limits_of_mysql_end_no_hold_and_no_wait_of_any_way() {
        super::limits_end_no_hold_and_no_wait(super::Kind::MySql).await;
    }
}

/// Longer than each limit.
const WORK: Duration = Duration::from_secs(3);

/// Two seconds each, so that a busy machine can still make a connection.
const MARIADB: &str = "SET GLOBAL wait_timeout = 2, GLOBAL max_statement_time = 2, GLOBAL idle_transaction_timeout = 2, \
    GLOBAL idle_readonly_transaction_timeout = 2, GLOBAL idle_write_transaction_timeout = 2";
const MYSQL: &str = "SET GLOBAL wait_timeout = 2, GLOBAL max_execution_time = 2000";

/// A wait for a row that runs out undoes the whole transaction there.
fn start(kind: Kind) -> dlock_testkit::Result<Instance> {
    let rollback = "--innodb-rollback-on-timeout=ON".to_owned();
    match kind {
        Kind::MariaDb => Instance::start(MariaDb { extra: vec![rollback] }),
        // As the server is by default. The other tests switch both off.
        Kind::MySql => {
            let usual = ["--performance-schema=ON", "--log-bin=binlog"].map(str::to_owned);
            Instance::start(MySql { extra: [usual.to_vec(), vec![rollback]].concat() })
        }
    }
}

/// One server for the three ways: each start costs more than the case.
async fn limits_end_no_hold_and_no_wait(kind: Kind) {
    let server = tokio::task::spawn_blocking(move || start(kind)).await.unwrap().unwrap();
    let database = async |case: &str| Database::create(&server.url(), case).await;
    let (queues, named, rows) = futures::join!(database("queues"), database("named"), database("rows"));
    if kind == Kind::MySql {
        let usual = named.lines("SELECT CONCAT(@@log_bin, @@performance_schema)").await;
        assert_eq!(usual, ["11"], "the server's defaults are off");
    }
    // The tables are made before the limits, so that no slow disk meets them.
    drop((queues.store().await, open(&named).await));
    let mut rows = World::new(rows).await;
    a_body_whose_transaction_is_undone_after_a_wait_is_told(&rows).await;
    queues.change(if kind == Kind::MariaDb { MARIADB } else { MYSQL }).await;
    // Only new sessions have them.
    rows.registry = registry(&rows.database, &rows.database.url()).await;
    futures::join!(
        the_limits_are_real(kind, &rows.database),
        a_waiter_in_a_queue_is_served(queues),
        a_named_lock_stays(named),
        bodies_end_their_work(&rows)
    );
}

/// The lock goes with the transaction, and what the body writes after that is not kept.
async fn a_body_whose_transaction_is_undone_after_a_wait_is_told(world: &World) {
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, "INSERT INTO data VALUES (2, 0)").await?;
        wait_in_vain(world, &mut tx).await;
        let refused = run(&mut tx, "INSERT INTO data VALUES (3, 0)").await.unwrap_err();
        assert!(refused.downcast::<dlock::Error>().unwrap().is_lost());
        // The body does not look at errors.
        Ok::<_, Failure>(())
    };
    let error = world.lock().run_fallible(body).await.unwrap_err().downcast::<dlock::Error>().unwrap();
    assert_eq!(*error.kind(), ErrorKind::CommitUnknown, "{error}");
    assert_eq!(world.data().await, ["1"]);
    world.database.change("DELETE FROM data").await;
}

/// A limit that nothing meets would prove nothing.
async fn the_limits_are_real(kind: Kind, database: &Database) {
    let mut limited = database.connect().await;
    // MySQL says by a number that it was interrupted.
    let slept = sqlx::query_scalar("SELECT CAST(SLEEP(30) AS SIGNED)").fetch_one(&mut limited).await;
    assert!(!matches!(slept, Ok(0_i64)), "a statement has all the time that it likes");
    let is_ended = async |begin: &str| {
        let mut silent = database.connect().await;
        silent.execute(AssertSqlSafe(begin)).await.unwrap();
        let (number,): (i64,) = sqlx::query_as(SESSION).fetch_one(&mut silent).await.unwrap();
        let is_over = async || !database.sessions().await.contains(&number.to_string());
        wait_until("the server ends a silent session", is_over).await.unwrap();
    };
    is_ended("DO 1").await;
    if kind == Kind::MariaDb {
        const PATIENT: &str = "SET SESSION wait_timeout = 3600; START TRANSACTION";
        let writes = format!("{PATIENT}; INSERT INTO data VALUES (0, 0)");
        futures::join!(is_ended(PATIENT), is_ended(&writes));
    }
}

async fn a_waiter_in_a_queue_is_served(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    let hold = hold_with_turn(&database, &one, "a").await;
    let (_, wake) = join_queue(&database, &other, "a").await;
    let (standing, inside) = (database.waiting_sessions().await, database.turn_sessions().await);
    tokio::time::sleep(WORK).await;
    assert_eq!(database.waiting_sessions().await, standing, "a limit has ended the wait");
    assert_eq!(database.turn_sessions().await, inside, "a limit has ended the session with the turn");
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)));
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let next = granted(wake).await;
    assert!(token(&next) > token(&hold));
    assert_eq!(other.release(&next).await.unwrap(), Released::Released);
}

async fn a_named_lock_stays(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let hold = take(&one, &database.claim("a", TTL)).await;
    let wake = stand(&other, &database.claim("a", TTL)).await;
    let waiting = tokio::spawn(wake.signal.unwrap());
    database.until_one_waits().await;
    let standing = database.waiting_sessions().await;
    tokio::time::sleep(WORK).await;
    assert_eq!(database.waiting_sessions().await, standing, "a limit has ended the wait");
    assert!(matches!(confirm(&one, &hold).await, Standing::Renewed(_)), "a limit has ended the session");
    assert_eq!(one.release(&hold).await.unwrap(), Released::Released);
    let granted = waiting.await.unwrap().unwrap();
    assert!(matches!(granted, Signal::Granted(_)), "a limit has ended the wait");
}

/// Each kind of time that a limit could end: that of a statement, and those between two, before and after a change.
async fn bodies_end_their_work(world: &World) {
    let works = async |id: u32, first: &str, pause: Duration| {
        let body = async |held: Held| {
            let mut tx = transaction(&held)?;
            let slept = sqlx::query_scalar(AssertSqlSafe(first)).fetch_optional(&mut *tx.conn().await?).await?;
            assert!(matches!(slept, None | Some(0_i64)), "a limit has ended the statement");
            tokio::time::sleep(pause).await;
            run(&mut tx, &format!("INSERT INTO data VALUES ({id}, 0)")).await
        };
        let ended: Result<(), Failure> = world.registry.lock(Key::new().value(&id)).run_fallible(body).await;
        ended.unwrap_or_else(|error| panic!("{first}: {error}"));
    };
    futures::join!(
        works(1, "SELECT CAST(SLEEP(3) AS SIGNED)", Duration::ZERO),
        works(2, "SELECT n FROM data WHERE id = 9", WORK),
        works(3, "INSERT INTO data VALUES (30, 0)", WORK)
    );
    assert_eq!(world.data().await, ["1", "2", "3", "30"]);
}
