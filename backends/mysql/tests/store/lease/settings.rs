//! Settings of the server that must make no difference, and those that must be told.

use dlock::fenced::mysql as fenced;
use dlock::{ErrorKind, Fence, Key, LockKey};
use dlock_contract::{Backend, Error, Queue, Released, Standing};
use dlock_testkit::holds::{claim_on, confirm, take, token};
use dlock_testkit::servers::{Instance, MariaDb, MySql};
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;

use super::cases::limits::without_a_free_connection;
use super::cases::support::{attempt, is_refused, lease_cycle};
use super::kit::{Database, Kind, SET_REMAINING, TTL, Versioned, try_open};
use crate::named::support::named_cycle;
use crate::row_cases::support::row_cycle;
use crate::{named_kit, row_kit};

cases_with_own_server! { on both:
    settings_of_the_server_make_no_difference_to_a_session
    a_read_only_server_is_refused_and_told_when_it_becomes_one
    a_server_without_a_free_connection_is_an_outage_with_its_code
    a_server_that_does_not_write_its_log_at_each_commit_is_told
    row_locks_refuse_a_log_of_statements_by_name
}

async fn settings_of_the_server_make_no_difference_to_a_session(_server: Instance, database: Database) {
    let before = database.store().await;
    let held = take(&before, &database.claim("held", TTL)).await;
    for (number, setting) in [
        "time_zone = '+13:00'",
        "time_zone = '-11:00'",
        "sql_mode = ''",
        "sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'",
        "autocommit = 0",
        "init_connect = 'SET autocommit = 0, time_zone = \"-05:00\"'",
        "init_connect = 'SET timestamp = 12345'",
        "init_connect = ''",
        "transaction_isolation = 'SERIALIZABLE'",
        "transaction_isolation = 'READ-UNCOMMITTED'",
        "innodb_lock_wait_timeout = 100",
        "character_set_server = 'latin1'",
        "completion_type = 'CHAIN'",
        "completion_type = 'RELEASE'",
        "completion_type = 'NO_CHAIN'",
        "sql_safe_updates = 1",
        "sql_select_limit = 1",
        "max_join_size = 1",
        "sql_mode = 'ORACLE'",
        "innodb_snapshot_isolation = ON",
    ]
    .into_iter()
    .enumerate()
    {
        let is_of_mariadb = setting.contains("ORACLE") || setting.contains("snapshot");
        if is_of_mariadb && !is_mariadb(&database).await {
            continue;
        }
        // MariaDB 10.11 knows the isolation by another name.
        let isolation = setting.replace("transaction_isolation", "tx_isolation");
        let setting = if is_mariadb(&database).await { &isolation } else { setting };
        database.change(&format!("SET GLOBAL {setting}")).await;
        // An ordinary account, since the words for each connection are not said to one that may do everything.
        let url = database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await;
        let (one, other) = (try_open(&url).await.unwrap(), try_open(&url).await.unwrap());
        lease_cycle(&one, &other, &before, &database, &number.to_string()).await;
        is_refused(&one, &database.claim("held", TTL)).await;
        named_cycle(&url, &number.to_string()).await;
        row_cycle(&url, &number.to_string()).await;
        assert!(matches!(confirm(&before, &held).await, Standing::Renewed(_)), "{setting}");
    }
}

/// The default of MariaDB 11.8. In a transaction that has read the row, the write of another one is no lost update but an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_changed_since_it_was_read_is_a_conflict_with_snapshot_isolation() {
    let database = Database::create(&Kind::MariaDb.shared().unwrap(), "snapshot").await;
    database
        .change("CREATE TABLE stock (id BIGINT PRIMARY KEY, remaining BIGINT NOT NULL, version BIGINT NOT NULL)")
        .await;
    database.change("INSERT INTO stock VALUES (7, 5, 1)").await;
    let stock = Versioned::new("stock", "id", "version");
    let mut conn = database.connect().await;
    let begin = "SET SESSION innodb_snapshot_isolation = ON; START TRANSACTION";
    sqlx::raw_sql(begin).execute(&mut conn).await.unwrap();
    let read = stock.read(&mut conn, "remaining", 7_i64).await.unwrap().unwrap();
    database.change("UPDATE stock SET remaining = 4, version = 2").await;
    let late = stock.write(&mut conn, 7_i64, read.version, SET_REMAINING, |query| query.bind(3_i64)).await;
    let error = late.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Conflict, Some("1020")), "{error}");
    assert_eq!(database.lines("SELECT remaining FROM stock").await, ["4"]);
}

/// So is a token that another transaction has written since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_changed_since_it_was_read_is_a_conflict_with_snapshot_isolation() {
    let database = Database::create(&Kind::MariaDb.shared().unwrap(), "snapshot").await;
    let [mut late, mut other] = [database.connect().await, database.connect().await];
    fenced::prepare(&mut late).await.unwrap();
    let fence = |token| Fence::from_parts(database.claim("a", TTL).key.clone(), Some(token)).unwrap();
    fenced::admit(&mut other, &fence(1), "stock").await.unwrap();
    let begin = "SET SESSION innodb_snapshot_isolation = ON; START TRANSACTION; SELECT token FROM dlock_fenced";
    sqlx::raw_sql(begin).execute(&mut late).await.unwrap();
    fenced::admit(&mut other, &fence(3), "stock").await.unwrap();
    let error = fenced::admit(&mut late, &fence(2), "stock").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Conflict, Some("1020")), "{error}");
    sqlx::raw_sql("ROLLBACK").execute(&mut late).await.unwrap();
    let error = fenced::admit(&mut late, &fence(2), "stock").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FenceStale { seen: 3 }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_lets_nobody_set_the_time_is_used_as_it_is() {
    let recipe = MariaDb { extra: vec!["--secure-timestamp=YES".to_owned()] };
    let server = tokio::task::spawn_blocking(move || Instance::start(recipe)).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "secure").await;
    let store = database.store().await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)));
}

/// MariaDB has no such databases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_read_only_is_told() {
    let database = Database::create(&Kind::MySql.shared().unwrap(), "read_only").await;
    let (store, named) = (database.store().await, named_kit::open(&database).await);
    let hold = take(&store, &database.claim("a", TTL)).await;
    let claim = |text: &str| claim_on(&LockKey::new("named", Key::new().value(text)).unwrap(), TTL, |_| ());
    let named_hold = take(&named, &claim("a")).await;
    database.change(&format!("ALTER DATABASE {} READ ONLY = 1", database.name)).await;
    let is_told = |error: Error| {
        assert_eq!((error.kind(), error.code()), (&ErrorKind::NotPrimary, Some("3989")), "{error}");
        assert!(!error.is_retryable() && error.to_string().contains("the database is read-only"), "{error}");
    };
    is_told(try_open(&database.url()).await.unwrap_err());
    is_told(dlock_mysql::named::open(&database.url(), &dlock::Clock::system()).await.unwrap_err());
    is_told(store.ready().await.unwrap_err());
    is_told(named.ready().await.unwrap_err());
    is_told(attempt(&store, &database.claim("b", TTL)).await.unwrap_err());
    is_told(store.renew(&[&hold]).await.remove(0).unwrap_err());
    is_told(store.release(&hold).await.unwrap_err());
    // Its token cannot be written, so it is given back. The lock that is held needs no write.
    is_told(named.try_acquire(&claim("b"), Queue::Leave).await.unwrap_err());
    assert!(matches!(confirm(&named, &named_hold).await, Standing::Renewed(_)));
    assert_eq!(named.release(&named_hold).await.unwrap(), Released::Released);
    database.change(&format!("ALTER DATABASE {} READ ONLY = 0", database.name)).await;
    store.ready().await.unwrap();
    named.ready().await.unwrap();
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "a switch and back lost the lock");
    let next = take(&named_kit::open(&database).await, &claim("b")).await;
    assert!(token(&next) > token(&named_hold));
}

async fn is_mariadb(database: &Database) -> bool {
    database.lines("SELECT VERSION()").await[0].contains("MariaDB")
}

async fn a_read_only_server_is_refused_and_told_when_it_becomes_one(_server: Instance, database: Database) {
    // One that may do everything may write in spite of it.
    let url = database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await;
    a_server_becomes_read_only(&database, "read_only", &url).await;
    // This one stops everybody. MariaDB does not have it.
    if !is_mariadb(&database).await {
        a_server_becomes_read_only(&database, "super_read_only", &database.url()).await;
    }
}

async fn a_server_becomes_read_only(database: &Database, setting: &str, url: &str) {
    let store = try_open(url).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    let (named, rows) = (named_kit::open_at(url).await, row_kit::open(url).await.unwrap());
    let other = |way: &str, text: &str| claim_on(&LockKey::new(way, Key::new().value(text)).unwrap(), TTL, |_| ());
    let named_hold = take(&named, &other("named", "a")).await;
    let row_hold = take(&rows, &other("row", "a")).await;
    database.change(&format!("SET GLOBAL {setting} = 1")).await;
    let is_told = |error: Error| assert_eq!(*error.kind(), ErrorKind::NotPrimary, "{setting}: {error}");
    is_told(try_open(url).await.unwrap_err());
    is_told(try_open(&database.url()).await.unwrap_err());
    is_told(store.ready().await.unwrap_err());
    // On the sessions that there are.
    is_told(attempt(&store, &database.claim("b", TTL)).await.unwrap_err());
    is_told(store.renew(&[&hold]).await.remove(0).unwrap_err());
    is_told(store.release(&hold).await.unwrap_err());
    is_told(store.abandon(&hold.claim).await.unwrap_err());
    is_told(dlock_mysql::named::open(url, &dlock::Clock::system()).await.unwrap_err());
    is_told(row_kit::open(url).await.unwrap_err());
    is_told(named.ready().await.unwrap_err());
    is_told(rows.ready().await.unwrap_err());
    // A token cannot be written, so the lock is given back.
    is_told(named.try_acquire(&other("named", "b"), Queue::Leave).await.unwrap_err());
    is_told(rows.try_acquire(&other("row", "b"), Queue::Leave).await.unwrap_err());
    // The session that was refused is closed, because another server is the primary by now. Its other locks go with it.
    assert_eq!(confirm(&named, &named_hold).await, Standing::Lost);
    assert_eq!(named.release(&named_hold).await.unwrap(), Released::NotOwner);
    // A row has a session of its own, and needs no write as long as the body does none.
    assert!(matches!(confirm(&rows, &row_hold).await, Standing::Renewed(_)));
    assert_eq!(rows.release(&row_hold).await.unwrap(), Released::Released);
    // It ends the other one too.
    database.change("SET GLOBAL read_only = 0").await;
    assert!(matches!(confirm(&store, &hold).await, Standing::Renewed(_)), "a switch and back lost the lock");
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_server_without_a_free_connection_is_an_outage_with_its_code(_server: Instance, database: Database) {
    let url = database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await;
    let use_up = async || {
        database.change("SET GLOBAL max_connections = 12").await;
        let somebody: MySqlConnectOptions = url.parse().unwrap();
        let mut all = Vec::new();
        while let Ok(conn) = somebody.connect().await {
            assert!(all.len() < 100, "the server takes any number of connections");
            all.push(conn);
        }
        all
    };
    // A caller that needs one more is told.
    let told = without_a_free_connection(&database, &url, "1040", use_up).await;
    assert!(told.iter().all(|error| error.code() == Some("1040")) && told.len() <= 1, "{told:?}");
}

async fn a_server_that_does_not_write_its_log_at_each_commit_is_told(_server: Instance, database: Database) {
    let store = database.store().await;
    assert_eq!(store.ready().await.unwrap().findings, [""; 0]);
    for (value, findings) in [(2, 1), (0, 1), (1, 0)] {
        database.change(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}")).await;
        let health = store.ready().await.unwrap();
        assert_eq!(health.findings.len(), findings, "{value}: {health}");
        assert!(health.findings.iter().all(|text| text.contains("innodb_flush_log_at_trx_commit")), "{health}");
    }
    take(&store, &database.claim("a", TTL)).await;
}

async fn row_locks_refuse_a_log_of_statements_by_name(_server: Instance, database: Database) {
    let statements = async |database: &Database| {
        database.change("SET GLOBAL binlog_format = 'STATEMENT'").await;
        database.end_sessions().await;
    };
    // Without a log the setting means nothing.
    assert_eq!(database.lines("SELECT @@log_bin").await, ["0"]);
    statements(&database).await;
    row_cycle(&database.url(), "a").await;

    let extra: Vec<_> = ["--log-bin=binlog", "--server-id=1"].map(str::to_owned).into();
    let with_log = match is_mariadb(&database).await {
        true => tokio::task::spawn_blocking(|| Instance::start(MariaDb { extra })),
        false => tokio::task::spawn_blocking(|| Instance::start(MySql { extra })),
    };
    let server = with_log.await.unwrap().unwrap();
    let logged = Database::create(&server.url(), "logged").await;
    assert_eq!(logged.lines("SELECT @@log_bin").await, ["1"]);
    let before = row_kit::open(&logged.url()).await.unwrap();
    before.ready().await.unwrap();
    statements(&logged).await;
    for error in [row_kit::open(&logged.url()).await.unwrap_err(), before.ready().await.unwrap_err()] {
        assert!(error.to_string().contains("binlog_format"), "{error}");
    }
}
