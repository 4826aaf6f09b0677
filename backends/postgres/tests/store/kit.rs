//! Databases of the cases' own, on servers of the test kit, and the stores in them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::{Clock, Key, LockKey, Result};
use dlock_contract::Claim;
use dlock_postgres::Postgres;
use dlock_sql::LeaseRow;
use dlock_testkit::holds::claim_on;
use dlock_testkit::servers::{self, Instance, WallClock, on_small_disk, shared};
use futures::future::LocalBoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, ValueRef};

/// Longer than the longest stall of a machine: no lease ends by itself, and no session that is silent for so long.
pub(crate) const TTL: Duration = Duration::from_secs(120);

pub(crate) type Store = LeaseRow<Postgres>;

pub(crate) type Client = PgConnection;

pub(crate) use dlock_postgres::versioned::Versioned;
pub(crate) use dlock_postgres::{Builder, Login};

/// The change of a row in the cases of version columns.
pub(crate) const SET_REMAINING: &str = "remaining = $1";

/// The server's time, as the rows have it.
pub(crate) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The zone of sessions.
pub(crate) const SUMMER_TIME: &str = "ALTER DATABASE {database} SET timezone = 'Europe/Berlin'";

/// The seconds of the local time. The client of the tests has a zone of its own.
pub(crate) const LOCAL_NOW: &str = "SELECT extract(epoch FROM clock_timestamp() AT TIME ZONE 'Europe/Berlin')::bigint";

/// How long a waiter keeps its place in the queue.
pub(crate) const KEEPS_ITS_PLACE: Duration = Duration::from_secs(2);

/// Whether a session may end because the server's clock was set forward.
pub(crate) const JUMPS_END_SESSIONS: bool = true;

/// A table that fills the disk. Its text is stored as it is, not made small.
pub(crate) const FILLER: &str = "CREATE TABLE filler (more TEXT); ALTER TABLE filler ALTER more SET STORAGE EXTERNAL";

/// The code of a full disk.
pub(crate) const FULL: &str = "53100";

/// Rows whose change makes a transaction a heavy one, on a server that weighs.
pub(crate) const HEAVY: &str = "INSERT INTO weight SELECT generate_series(1, 500)";

/// A statement by which somebody's session leaves a deadlock to others: who looks first is undone.
pub(crate) async fn patient(database: &Database) -> &'static str {
    // A request of a store gives up after a second.
    database.change(&format!("ALTER DATABASE {} SET deadlock_timeout = '700ms'", database.name)).await;
    "SET deadlock_timeout = '60s'"
}

/// The times have no zone, so that of the session is nothing to them.
pub(crate) const JAVA_SESSION: &str = "";

/// ShedLock's insert, its time, and so many seconds later.
pub(crate) const JAVA_INSERT: &str =
    "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ({values}) ON CONFLICT (name) DO NOTHING";
pub(crate) const JAVA_NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

pub(crate) fn java_until(seconds: u32) -> String {
    format!("timezone('utc', CURRENT_TIMESTAMP) + make_interval(secs => {seconds})")
}

/// Statements that change the time zone of new sessions.
pub(crate) const ZONES: [&str; 2] = [
    "ALTER DATABASE {database} SET timezone = 'Pacific/Auckland'",
    "ALTER DATABASE {database} SET timezone = 'Pacific/Midway'",
];

/// Whether the session's zone changes what a `TIMESTAMP` of ShedLock's table says.
pub(crate) const TIMESTAMPS_HAVE_A_ZONE: bool = false;

/// Tables that lose what a lock needs, and what is told of them.
pub(crate) const WRONG_SHEDLOCK: [(&str, &str); 8] = [
    ("CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY)", "`lock_until` is missing"),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(0) NOT NULL, locked_at TIMESTAMP NOT NULL, \
            locked_by VARCHAR(255) NOT NULL)",
        "`lock_until` is timestamp(0) without time zone",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMPTZ NOT NULL, \
            locked_at TIMESTAMPTZ NOT NULL, locked_by VARCHAR(255) NOT NULL)",
        "ALTER lock_until TYPE TIMESTAMP USING lock_until AT TIME ZONE 'UTC'",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64), lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
            locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name, locked_by))",
        "`name` has no unique index",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY DEFERRABLE, lock_until TIMESTAMP NOT NULL, \
            locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)",
        "`shedlock_pkey` is DEFERRABLE",
    ),
    (
        "CREATE UNLOGGED TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, \
            locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)",
        "UNLOGGED",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
            locked_by VARCHAR(20) NOT NULL)",
        "`locked_by` is character varying(20)",
    ),
    (
        "CREATE TABLE shedlock (name CHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
            locked_by VARCHAR(255) NOT NULL)",
        "`name` is character(64)",
    ),
];

/// ShedLock's own, and others that people have.
pub(crate) const RIGHT_SHEDLOCK: [&str; 4] = [
    "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
        locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
    "CREATE TABLE shedlock (locked_by TEXT NOT NULL, name TEXT PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, \
        locked_at TIMESTAMP(3) NOT NULL, more INT)",
    "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
        locked_by VARCHAR(255) NOT NULL); CREATE UNIQUE INDEX more ON shedlock (name)",
    "CREATE DOMAIN task AS TEXT CHECK (value <> ''); CREATE DOMAIN node AS VARCHAR(120); \
        CREATE TABLE shedlock (name task PRIMARY KEY, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
        locked_by node NOT NULL)",
];

/// A name in large letters, as statements have it.
pub(crate) const LARGE_SHEDLOCK: &str = "\"SHEDLOCK\"";

/// How a statement makes bytes of a hexadecimal text.
pub(crate) fn bytes(hex: &str) -> String {
    format!("'\\x{hex}'::bytea")
}

/// Runs one case of `row_cases`.
pub(crate) async fn run(case: &str, body: fn(Database) -> LocalBoxFuture<'static, ()>) {
    body(Database::create(&shared().postgres().unwrap(), case).await).await;
}

/// Runs one case of `cases_with_own_server`.
pub(crate) async fn run_alone(body: fn(Instance, Database) -> LocalBoxFuture<'static, ()>) {
    let server = start(servers::Postgres::default()).await;
    let database = Database::create(&server.url(), "alone").await;
    body(server, database).await;
}

/// Runs one case of `cases_with_clock`.
pub(crate) async fn run_with_clock(body: fn(WallClock, Database) -> LocalBoxFuture<'static, ()>) {
    let clock = WallClock::new().unwrap();
    let server = start(clock.of(servers::Postgres::default())).await;
    let database = Database::create(&server.url(), "clock").await;
    body(clock, database).await;
}

/// Runs one case of `cases_on_small_disk`: the tables are on the disk, and the log of changes is not.
pub(crate) async fn run_on_small_disk(body: fn(Database) -> LocalBoxFuture<'static, ()>) {
    let server = start(on_small_disk(servers::Postgres::default(), "data/base", 64)).await;
    let database = Database::create(&server.url(), "disk").await;
    body(database).await;
}

/// A server of one case.
pub(crate) async fn start(recipe: impl servers::Recipe) -> Instance {
    tokio::task::spawn_blocking(move || Instance::start(recipe)).await.unwrap().unwrap()
}

pub(crate) async fn try_open(url: &str) -> Result<Store> {
    dlock_postgres::open(url, &Clock::system()).await
}

pub(crate) fn key(database: &Database, text: &str) -> LockKey {
    LockKey::new(&database.name, Key::new().value(text)).unwrap()
}

/// The first answer that is no outage. On a slow machine, limits of the database may end a session before its store has
/// switched them off.
pub(crate) async fn in_time<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

/// The limits that end sessions and statements, in every release.
const LIMITS: [&str; 4] =
    ["statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"];

/// A database of one case, and where it is.
pub(crate) struct Database {
    pub name: String,
    server: PgConnectOptions,
}

impl Database {
    /// A new one on the server with this URL.
    pub(crate) async fn create(url: &str, case: &str) -> Self {
        // A name has 63 bytes at most. A server from outside may have met the case before.
        let name = format!("{case:.50}_{:08x}", fastrand::u32(..));
        let server: PgConnectOptions = url.parse().unwrap();
        let mut root = server.connect().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut root).await.unwrap();
        root.close().await.unwrap();
        Self { name, server }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("dlock")
    }

    /// The same for another account, as `name:password`.
    pub(crate) fn url_of(&self, account: &str) -> String {
        format!("postgres://{account}@{}:{}/{}", self.server.get_host(), self.server.get_port(), self.name)
    }

    /// The same through another port of this host.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("postgres://dlock@127.0.0.1:{port}/{}", self.name)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.get_port()).into()
    }

    pub(crate) async fn connect(&self) -> PgConnection {
        let own = self.server.clone().database(&self.name).application_name("the tests");
        // Limits that a test gives to the database are meant for the stores.
        own.options(LIMITS.map(|limit| (limit, "0"))).connect().await.unwrap()
    }

    /// A claim in a namespace of the case's own.
    pub(crate) fn claim(&self, text: &str, ttl: Duration) -> Arc<Claim> {
        claim_on(&key(self, text), ttl, |_| ())
    }

    pub(crate) async fn store(&self) -> Store {
        in_time(async || try_open(&self.url()).await).await
    }

    /// A store with options of the URL.
    pub(crate) async fn store_with(&self, options: &str) -> Store {
        try_open(&format!("{}?{options}", self.url())).await.unwrap()
    }

    pub(crate) async fn change(&self, sql: &str) {
        let mut conn = self.connect().await;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        conn.close().await.unwrap();
    }

    /// The first column of each row, as text.
    pub(crate) async fn lines(&self, sql: &str) -> Vec<String> {
        let mut conn = self.connect().await;
        let lines = lines_of(&mut conn, sql).await;
        conn.close().await.unwrap();
        lines
    }

    /// The sessions that stores have in this database.
    pub(crate) async fn sessions(&self) -> Vec<String> {
        let name = &self.name;
        let stores = format!("datname = '{name}' AND application_name = 'dlock'");
        self.lines(&format!("SELECT pid FROM pg_stat_activity WHERE {stores}")).await
    }

    /// Ends all sessions of stores in this database, and returns when the server has.
    pub(crate) async fn end_sessions(&self) -> usize {
        let sessions = self.sessions().await;
        for session in &sessions {
            self.lines(&format!("SELECT pg_terminate_backend({session})")).await;
        }
        self.until_ended(&sessions).await;
        sessions.len()
    }

    /// Somebody's transaction that keeps the row of this name locked until it is dropped or rolled back.
    pub(crate) async fn lock_row(&self, name: &str) -> PgConnection {
        let mut conn = self.connect().await;
        sqlx::raw_sql("BEGIN").execute(&mut conn).await.unwrap();
        let found = lines_of(&mut conn, &format!("SELECT 1 FROM dlock_locks WHERE k = '{name}' FOR UPDATE")).await;
        assert_eq!(found.len(), 1, "no row {name}");
        conn
    }

    /// Whether a session of a store waits for a row.
    pub(crate) async fn waits_for_a_row(&self) -> bool {
        let waiting = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'dlock' \
             AND wait_event_type = 'Lock' AND wait_event <> 'advisory'",
            self.name
        );
        !self.lines(&waiting).await.is_empty()
    }

    /// How many deadlocks the database has seen.
    pub(crate) async fn deadlocks(&self) -> i64 {
        self.number(&format!("SELECT deadlocks FROM pg_stat_database WHERE datname = '{}'", self.name)).await
    }

    /// Somebody's session that keeps the whole table locked until it is dropped.
    pub(crate) async fn lock_table(&self) -> PgConnection {
        let mut conn = self.connect().await;
        sqlx::raw_sql("BEGIN; LOCK TABLE dlock_locks").execute(&mut conn).await.unwrap();
        conn
    }

    /// The URL of a new account that has these rights on dlock's tables and no other. Its password needs escapes in a URL.
    pub(crate) async fn account_with(&self, rights: &[(&str, &str)]) -> String {
        let account = format!("a{:08x}", fastrand::u32(..));
        self.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'p@ss/:w?#'")).await;
        for grant in rights {
            self.grant(&account, grant).await;
        }
        self.url_of(&format!("{account}:p%40ss%2F%3Aw%3F%23"))
    }

    pub(crate) async fn grant(&self, account: &str, (rights, table): &(&str, &str)) {
        self.change(&format!("GRANT {rights} ON {table} TO {account}")).await;
    }

    pub(crate) async fn revoke(&self, account: &str, (rights, table): &(&str, &str)) {
        self.change(&format!("REVOKE {rights} ON {table} FROM {account}")).await;
    }

    /// An account that may do all in this database.
    pub(crate) async fn make_account(&self, name: &str, password: &str) {
        self.change(&format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{}'", password.replace('\'', "''"))).await;
    }

    pub(crate) async fn change_password(&self, name: &str, password: &str) {
        self.change(&format!("ALTER ROLE {name} PASSWORD '{password}'")).await;
    }

    /// Options of a URL without which an account with a password is refused.
    pub(crate) async fn for_passwords(&self) -> &'static str {
        ""
    }

    /// As those of somebody's pool.
    pub(crate) fn settings(&self) -> PgConnectOptions {
        self.server.clone().database(&self.name)
    }

    /// Each namespace has one way; this one may have another from now on.
    pub(crate) async fn forget_way(&self) {
        self.change("DELETE FROM dlock_meta").await;
    }

    /// Makes the tables as the shipped files say.
    pub(crate) async fn migrate(&self) {
        for sql in [
            include_str!("../../migrations/20261123000001_dlock_locks.sql"),
            include_str!("../../migrations/20261123000002_dlock_breaks.sql"),
            include_str!("../../migrations/20261123000003_dlock_meta.sql"),
        ] {
            self.change(sql).await;
        }
    }
}

pub(crate) async fn lines_of(conn: &mut PgConnection, sql: &str) -> Vec<String> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let line = |row: &PgRow| {
        let value = row.try_get_raw(0).unwrap();
        if value.is_null() { "NULL".to_owned() } else { value.as_str().unwrap().to_owned() }
    };
    rows.iter().map(line).collect()
}
