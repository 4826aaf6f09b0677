//! Lease rows in a database of MySQL or MariaDB.

use std::time::Duration;

use dlock::{Clock, Result};
use dlock_mysql::lease::{self, MySql};
use dlock_sql::LeaseRow;
use dlock_testkit::servers::{Instance, WallClock};
use futures::future::LocalBoxFuture;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, Row};

pub(crate) use crate::named_kit::{TTL, key};
pub(crate) use crate::server::{Database, Kind};

pub(crate) type Store = LeaseRow<MySql>;

pub(crate) type Client = MySqlConnection;

pub(crate) use dlock_mysql::versioned::Versioned;
pub(crate) use dlock_mysql::{Builder, Login};

/// The change of a row in the cases of version columns.
pub(crate) const SET_REMAINING: &str = "remaining = ?";

/// The server's time, as the rows have it.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The zone of sessions. Here it is the server's, which has summer time where the server has a clock of its own.
pub(crate) const SUMMER_TIME: &str = "SET GLOBAL time_zone = 'SYSTEM'";

/// The seconds of the local time, in a session with the server's zone.
pub(crate) const LOCAL_NOW: &str = "SET time_zone = DEFAULT; SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', NOW())";

/// How long a waiter keeps its place in the queue.
pub(crate) const KEEPS_ITS_PLACE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Whether a session may end because the server's clock was set forward.
pub(crate) const JUMPS_END_SESSIONS: bool = false;

/// A table that fills the disk.
pub(crate) const FILLER: &str = "CREATE TABLE filler (more TEXT)";

/// The code of a full disk.
pub(crate) const FULL: &str = "1114";

/// Rows whose change makes a transaction a heavy one.
pub(crate) const HEAVY: &str = "INSERT INTO weight WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 500) SELECT n FROM up";

/// A statement by which somebody's session leaves a deadlock to others. Here its weight does it.
pub(crate) async fn patient(_: &Database) -> &'static str {
    "DO 1"
}

/// Connector/J leaves a session's time zone as the server has it. The client of the tests does not.
pub(crate) const JAVA_SESSION: &str = "SET time_zone = DEFAULT; ";

/// ShedLock's insert, its time, and so many seconds later.
pub(crate) const JAVA_INSERT: &str =
    "INSERT IGNORE INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ({values})";
pub(crate) const JAVA_NOW: &str = "UTC_TIMESTAMP(3)";

pub(crate) fn java_until(seconds: u32) -> String {
    format!("TIMESTAMPADD(MICROSECOND, {seconds}000000, UTC_TIMESTAMP(3))")
}

/// Statements that change the time zone of new sessions.
pub(crate) const ZONES: [&str; 2] = ["SET GLOBAL time_zone = '+13:00'", "SET GLOBAL time_zone = '-11:00'"];

/// Whether the session's zone changes what a `TIMESTAMP` of ShedLock's table says.
pub(crate) const TIMESTAMPS_HAVE_A_ZONE: bool = true;

/// Tables that lose what a lock needs, and what is told of them.
pub(crate) const WRONG_SHEDLOCK: [(&str, &str); 6] = [
    ("CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY)", "`lock_until` is missing"),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, \
            locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL)",
        "`lock_until` is timestamp",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64), lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, \
            locked_by VARCHAR(255) NOT NULL)",
        "`name` alone",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64), lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, \
            locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name, locked_by))",
        "`name` alone",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, \
            locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL) ENGINE=MyISAM",
        "MyISAM",
    ),
    (
        "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, \
            locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(20) NOT NULL)",
        "`locked_by` is varchar(20)",
    ),
];

/// ShedLock's own, and others that people have.
pub(crate) const RIGHT_SHEDLOCK: [&str; 3] = [
    "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
        locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
    "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(6) NOT NULL, locked_at DATETIME(6) NOT NULL, \
        locked_by VARCHAR(255) NOT NULL, more INT) CHARSET latin1",
    "CREATE TABLE shedlock (name VARCHAR(200) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, \
        locked_by VARCHAR(255) NOT NULL) COLLATE utf8mb4_unicode_520_ci",
];

/// A name in large letters, as statements have it.
pub(crate) const LARGE_SHEDLOCK: &str = "SHEDLOCK";

/// How many bytes a statement makes of a hexadecimal text.
pub(crate) fn bytes(hex: &str) -> String {
    format!("X'{hex}'")
}

/// Runs one case of `cases_with_own_server`.
pub(crate) async fn run_alone(kind: Kind, body: fn(Instance, Database) -> LocalBoxFuture<'static, ()>) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "alone").await;
    body(server, database).await;
}

/// Runs one case of `cases_with_clock`.
pub(crate) async fn run_with_clock(kind: Kind, body: fn(WallClock, Database) -> LocalBoxFuture<'static, ()>) {
    let clock = WallClock::new().unwrap();
    let given = clock.clone();
    let server = tokio::task::spawn_blocking(move || kind.start_with(&given)).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "clock").await;
    body(clock, database).await;
}

/// Runs one case of `cases_on_small_disk`.
pub(crate) async fn run_on_small_disk(kind: Kind, body: fn(Database) -> LocalBoxFuture<'static, ()>) {
    let server = tokio::task::spawn_blocking(move || kind.start_on_small_disk()).await.unwrap().unwrap();
    body(Database::test_of(&server)).await;
}

pub(crate) async fn try_open(url: &str) -> Result<Store> {
    lease::open(url, &Clock::system()).await
}

impl Database {
    pub(crate) async fn store(&self) -> Store {
        try_open(&self.url()).await.unwrap()
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
        self.processes().await.into_iter().map(|process| process.id).collect()
    }

    /// Ends all sessions of stores in this database, and returns when the server has.
    pub(crate) async fn end_sessions(&self) -> usize {
        let sessions = self.sessions().await;
        let mut conn = self.outside().await;
        for session in &sessions {
            // It may have ended by itself.
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
        }
        conn.close().await.unwrap();
        self.until_ended(&sessions).await;
        sessions.len()
    }

    /// Somebody's transaction that keeps the row of this name locked until it is dropped or rolled back.
    pub(crate) async fn lock_row(&self, name: &str) -> MySqlConnection {
        let mut conn = self.connect().await;
        sqlx::raw_sql("START TRANSACTION").execute(&mut conn).await.unwrap();
        let found = lines_of(&mut conn, &format!("SELECT 1 FROM dlock_locks WHERE k = '{name}' FOR UPDATE")).await;
        assert_eq!(found.len(), 1, "no row {name}");
        conn
    }

    /// Whether a session of a store waits for a row.
    pub(crate) async fn waits_for_a_row(&self) -> bool {
        !self.in_row_waits().await.is_empty()
    }

    /// How many deadlocks the server has seen.
    pub(crate) async fn deadlocks(&self) -> i64 {
        match &self.lines("SELECT count FROM information_schema.INNODB_METRICS WHERE name = 'lock_deadlocks'").await[..]
        {
            [count] => count.parse().unwrap(),
            count => panic!("{count:?}"),
        }
    }

    /// Somebody's session that keeps the whole table locked until it is dropped.
    pub(crate) async fn lock_table(&self) -> MySqlConnection {
        let mut conn = self.connect().await;
        sqlx::raw_sql("LOCK TABLES dlock_locks WRITE").execute(&mut conn).await.unwrap();
        conn
    }

    /// The URL of a new account that has these rights on dlock's tables and no other.
    pub(crate) async fn account_with(&self, rights: &[(&str, &str)]) -> String {
        let account = format!("a{:08x}", fastrand::u32(..));
        self.change(&format!("CREATE USER '{account}'@'%'")).await;
        for grant in rights {
            self.grant(&account, grant).await;
        }
        self.url_of(&account)
    }

    pub(crate) async fn grant(&self, account: &str, (rights, table): &(&str, &str)) {
        self.change(&format!("GRANT {rights} ON {}.{table} TO '{account}'@'%'", self.name)).await;
    }

    pub(crate) async fn revoke(&self, account: &str, (rights, table): &(&str, &str)) {
        self.change(&format!("REVOKE {rights} ON {}.{table} FROM '{account}'@'%'", self.name)).await;
    }

    /// An account that may do all in this database.
    pub(crate) async fn make_account(&self, name: &str, password: &str) {
        let password = password.replace('\\', "\\\\").replace('\'', "''");
        self.change(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{password}'")).await;
        self.change(&format!("GRANT ALL ON {}.* TO '{name}'@'%'", self.name)).await;
    }

    pub(crate) async fn change_password(&self, name: &str, password: &str) {
        self.change(&format!("ALTER USER '{name}'@'%' IDENTIFIED BY '{password}'")).await;
    }

    /// Options of a URL without which an account with a password is refused: MySQL's kind of password needs TLS.
    pub(crate) async fn for_passwords(&self) -> &'static str {
        let is_mariadb = self.lines("SELECT VERSION()").await[0].contains("MariaDB");
        if is_mariadb { "" } else { "tls=require" }
    }

    /// Each namespace has one way; this one may have another from now on.
    pub(crate) async fn forget_way(&self) {
        self.change("DELETE FROM dlock_meta").await;
    }

    /// Makes the tables as the shipped files say.
    pub(crate) async fn migrate(&self) {
        for sql in [
            include_str!("../../../migrations/20261123000001_dlock_locks.sql"),
            include_str!("../../../migrations/20261123000002_dlock_breaks.sql"),
            include_str!("../../../migrations/20261123000003_dlock_meta.sql"),
        ] {
            self.change(sql).await;
        }
    }
}

pub(crate) async fn lines_of(conn: &mut MySqlConnection, sql: &str) -> Vec<String> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.iter().map(|row| text(row, 0)).collect()
}

fn text(row: &MySqlRow, column: usize) -> String {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column).unwrap();
    bytes.map_or("NULL".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}
