//! Row locks, as far as they are MySQL's and MariaDB's own.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use dlock::{ErrorKind, Held};
use dlock_contract::{Attempt, Backend, BreakRecord, HoldId, Inspect, Queue, Released, Signal, Standing};
use dlock_testkit::holds::{confirm, stand, take};
use dlock_testkit::{Mode, Proxy, wait_until};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Connection, Executor};

use crate::named_kit::TTL;
use crate::row_cases::world::{Failure, World, run};
use crate::row_kit::{Kind, RowTransaction, SESSION, open, runs, transaction, transaction_of, waiting};
use crate::server::Database;

row_lock_cases! {
    on both:
    a_body_that_changes_a_tables_definition_is_told_that_it_may_have_committed
    a_mark_that_could_not_be_taken_away_ends_with_its_session
    a_wait_for_a_row_that_runs_out_in_a_body_undoes_its_statement_alone
    a_nested_transaction_whose_commit_is_given_up_ends_no_hold
    a_missing_row_that_another_session_makes_and_keeps_is_busy
    a_body_that_waits_for_a_table_keeps_no_row_for_longer_than_its_ttl_when_its_process_dies
    a_statement_of_a_body_waits_for_a_row_no_longer_than_the_ttl
    a_sweep_that_waits_for_a_row_does_not_stop_the_record_of_its_holder
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

/// The account may send only so many statements more, so one after another of those of a commit is refused.
async fn a_mark_that_could_not_be_taken_away_ends_with_its_session(database: Database) {
    let world = World::new(database).await;
    let mut root = world.database.connect().await;
    let account = format!("short_{:08x}", fastrand::u32(..));
    let mut change = async |sql: &str| {
        root.execute(sqlx::AssertSqlSafe(sql.replace("{user}", &format!("'{account}'@'%'")))).await.unwrap();
    };
    change(&format!("CREATE USER {{user}} WITH MAX_QUERIES_PER_HOUR {PLENTY}")).await;
    change(&format!("GRANT ALL ON {}.* TO {{user}}", world.database.name)).await;
    let store = open(&world.database.url_of(&account)).await.unwrap();
    let mut allow = async |queries: u32| {
        // The second one counts anew.
        change(&format!("ALTER USER {{user}} WITH MAX_QUERIES_PER_HOUR {queries}")).await;
        change("FLUSH PRIVILEGES").await;
    };
    let (mut committed, mut refused) = (0, 0);
    for queries in 1..=12 {
        let hold = take(&store, &world.database.claim("a", TTL)).await;
        let mut tx = transaction_of(&hold).unwrap();
        let sql = format!("INSERT INTO data VALUES ({queries}, 0)");
        tx.conn().await.unwrap().execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        drop(tx);
        allow(queries).await;
        let settled = store.settle().unwrap().settle(&hold).await;
        allow(PLENTY).await;
        if settled.is_err() {
            refused += 1;
            let _ = store.release(&hold).await;
            continue;
        }
        committed += 1;
        let next = take(&store, &world.database.claim("a", TTL)).await;
        let mark = format!("SELECT IS_USED_LOCK('dlr{}') IS NULL", HoldId::of(&hold.claim.owner));
        let is_gone = async || {
            // So that the server does not end the session for its silence.
            assert!(matches!(confirm(&store, &next).await, Standing::Renewed(_)));
            world.database.lines(&mark).await == ["1"]
        };
        wait_until("the mark of the hold before has gone", is_gone).await.unwrap();
        store.release(&next).await.unwrap();
    }
    assert!(committed > 0 && refused > 0, "{committed} committed, {refused} refused: nothing is proven");
    assert_eq!(world.data().await.len(), committed);
    change("DROP USER {user}").await;
}

/// By default the server keeps the transaction, and its row locks.
async fn a_wait_for_a_row_that_runs_out_in_a_body_undoes_its_statement_alone(database: Database) {
    let world = World::new(database).await;
    let body = async |held: Held| {
        let mut tx = transaction(&held)?;
        run(&mut tx, "INSERT INTO data VALUES (2, 0)").await?;
        wait_in_vain(&world, &mut tx).await;
        held.confirm().await?;
        run(&mut tx, "INSERT INTO data VALUES (3, 0)").await
    };
    world.lock().run_fallible(body).await.unwrap();
    assert_eq!(world.data().await, ["1", "2", "3"]);
    // As the next body finds the row.
    world.lock().run_fallible(async |held| run(&mut transaction(&held)?, "DELETE FROM data").await).await.unwrap();
}

/// The client library then rolls back to a savepoint that is gone, and the server's error is read by the next request.
async fn a_nested_transaction_whose_commit_is_given_up_ends_no_hold(database: Database) {
    let world = World::new(database).await;
    let store = open(&world.database.url()).await.unwrap();
    for (id, is_confirmed) in [(1, true), (2, false)] {
        let hold = take(&store, &world.database.claim("b", TTL)).await;
        let mut tx = transaction_of(&hold).unwrap();
        let mut conn = tx.conn().await.unwrap();
        let insert = format!("INSERT IGNORE INTO data VALUES ({id}, 0)");
        // The server may be so quick that it is not given up.
        for is_last in (0..50).map(|round| round == 49) {
            let mut inner = conn.begin().await.unwrap();
            inner.execute(sqlx::AssertSqlSafe(insert.clone())).await.unwrap();
            let mut committing = Box::pin(inner.commit());
            if poll_fn(|cx| Poll::Ready(committing.as_mut().poll(cx).is_pending())).await {
                break;
            }
            assert!(!is_last, "nothing is proven");
        }
        drop(conn);
        if is_confirmed {
            assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
            store.settle().unwrap().settle(&hold).await.unwrap();
        } else {
            drop(tx);
            assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
        }
    }
    assert_eq!(world.data().await, ["1"]);
}

/// An insert waits for a row that is being made, and gives up after a second.
async fn a_missing_row_that_another_session_makes_and_keeps_is_busy(database: Database) {
    let (store, claim) = (open(&database.url()).await.unwrap(), database.claim("a", TTL));
    let (gate, key) = (&database.name, &claim.key);
    let stop = format!("SET @gate = GET_LOCK('{gate}', 60), @gate = RELEASE_LOCK('{gate}')");
    database.change(&format!("CREATE TRIGGER gate BEFORE INSERT ON dlock_row_keys FOR EACH ROW {stop}")).await;
    let mut somebody = database.connect().await;
    let mut ask = async |sql: String| somebody.execute(sqlx::AssertSqlSafe(sql)).await.map(drop).unwrap();
    ask(format!("DO GET_LOCK('{gate}', 0)")).await;
    let makes = async {
        wait_until("the insert has begun", async || database.waiting_sessions().await.len() == 1).await.unwrap();
        ask("START TRANSACTION".into()).await;
        ask(format!("INSERT INTO dlock_row_keys (k) VALUES ('{key}')")).await;
        ask(format!("DO RELEASE_LOCK('{gate}')")).await;
    };
    let (attempt, ()) = tokio::join!(store.try_acquire(&claim, Queue::Leave), makes);
    assert!(matches!(attempt, Ok(Attempt::Contended(_))), "{attempt:?}");
    ask("COMMIT".into()).await;
    store.release(&take(&store, &claim).await).await.unwrap();
}

/// The server does not see that the client of a waiting statement is gone.
async fn a_body_that_waits_for_a_table_keeps_no_row_for_longer_than_its_ttl_when_its_process_dies(database: Database) {
    let world = World::new(database).await;
    let (proxy, url) = Proxy::in_front_of(&world.database.url()).unwrap();
    let far = open(&url).await.unwrap();
    let hold = take(&far, &world.database.claim("b", Duration::from_secs(2))).await;
    let mut somebody = world.database.connect().await;
    somebody.execute("LOCK TABLES data WRITE").await.unwrap();
    let mut tx = transaction_of(&hold).unwrap();
    let mut conn = tx.conn().await.unwrap();
    let waits = async {
        runs(&world.database, "INSERT INTO data").await;
        proxy.set(Mode::BLACKHOLE);
        proxy.cut();
    };
    tokio::select! {
        () = waits => {}
        done = conn.execute("INSERT INTO data VALUES (1, 0)") => assert!(done.is_err()),
    }
    let near = open(&world.database.url()).await.unwrap();
    let is_free = async || {
        let asked = near.try_acquire(&world.database.claim("b", TTL), Queue::Leave).await;
        matches!(asked, Ok(Attempt::Acquired(_)))
    };
    wait_until("the row is free", is_free).await.unwrap();
}

async fn a_statement_of_a_body_waits_for_a_row_no_longer_than_the_ttl(database: Database) {
    let world = World::new(database).await;
    let (store, other) = (open(&world.database.url()).await.unwrap(), open(&world.database.url()).await.unwrap());
    let limits = async |hold: &dlock_contract::Hold| {
        let mut tx = transaction_of(hold).unwrap();
        let sql = "SELECT CAST(CONCAT(@@innodb_lock_wait_timeout, ' ', @@lock_wait_timeout) AS CHAR)";
        let (limits,): (String,) = sqlx::query_as(sql).fetch_one(&mut *tx.conn().await.unwrap()).await.unwrap();
        limits
    };
    let ttl = Duration::from_secs(9);
    let hold = take(&store, &world.database.claim("b", ttl)).await;
    assert_eq!(limits(&hold).await, "9 9");
    let granted = tokio::spawn(stand(&other, &world.database.claim("b", ttl)).await.signal.unwrap());
    wait_until("it waits", async || waiting(&world.database).await == 1).await.unwrap();
    store.release(&hold).await.unwrap();
    let Signal::Granted(hold) = granted.await.unwrap().unwrap() else { panic!("no hold") };
    assert_eq!(limits(&hold).await, "9 9");
    let hold = take(&store, &world.database.claim("c", TTL)).await;
    let server =
        "SELECT CAST(CONCAT(@@GLOBAL.innodb_lock_wait_timeout, ' ', LEAST(@@GLOBAL.lock_wait_timeout, 120)) AS CHAR)";
    assert_eq!(limits(&hold).await, world.database.lines(server).await[0], "the server's own limits are shorter");
}

/// A holder takes the row in the moment between the two deletions. Its record must not wait for the second one, which waits for it.
async fn a_sweep_that_waits_for_a_row_does_not_stop_the_record_of_its_holder(database: Database) {
    let store = open(&database.url()).await.unwrap();
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    let key = database.lines("SELECT k FROM dlock_row_keys").await.remove(0);
    let mut holder = database.connect().await;
    let takes = format!("START TRANSACTION; SELECT k FROM dlock_row_keys WHERE k = '{key}' FOR UPDATE");
    holder.execute(sqlx::AssertSqlSafe(takes)).await.unwrap();
    let record = format!(
        "INSERT IGNORE INTO dlock_rows (k, part, token, mode, session, xact, hold, note, long_key) \
         VALUES ('{key}', '', 1, 0, 0, 0, '', '', '{key}')"
    );
    let _sweeps = open(&format!("{}?way=row&sweep_every=50ms&sweep_after=1h", database.url())).await.unwrap();
    database.change("UPDATE dlock_rows SET token = 1").await;
    let is_waiting = async || database.running("row_keys").await.iter().any(|one| one.statement.starts_with("DELETE"));
    for _ in 0..10 {
        wait_until("the sweep waits for the row", is_waiting).await.unwrap();
        database.change(&record).await;
        // A record that waited for the sweep is written when the sweep has given up. The next sweep begins 50 ms later.
        if is_waiting().await {
            return;
        }
    }
    panic!("each record was written after the sweep had given up");
}

/// Waits for a row of somebody else until the server ends that.
pub(crate) async fn wait_in_vain(world: &World, tx: &mut RowTransaction) {
    let mut somebody = world.database.connect().await;
    somebody.execute("START TRANSACTION; INSERT INTO data VALUES (1, 0)").await.unwrap();
    let mut conn = tx.conn().await.unwrap();
    conn.execute("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    let error = conn.execute("INSERT INTO data VALUES (1, 7)").await.unwrap_err();
    let of_server = error.as_database_error().unwrap().downcast_ref::<MySqlDatabaseError>();
    assert_eq!(of_server.number(), 1205, "{error}");
    // It is no deadlock: whether the work is undone depends on the server's settings.
    let kept: Failure = conn.statement_error(error);
    assert!(kept.downcast_ref::<sqlx::Error>().is_some(), "{kept}");
    somebody.execute("COMMIT").await.unwrap();
}

/// More statements than a test sends.
const PLENTY: u32 = 1_000_000;

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
