//! Named locks in a database of MySQL or MariaDB.

use std::sync::Arc;
use std::time::Duration;

use dlock::{Clock, Key, LockKey};
use dlock_contract::Claim;
use dlock_mysql::lease::MySql;
use dlock_mysql::named;
use dlock_sql::NamedLock;
use dlock_testkit::holds::claim_on;
use futures::future::LocalBoxFuture;
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

pub(crate) use crate::server::{Database, Kind};

/// Named locks.
pub(crate) type Store = NamedLock<MySql>;

/// Whether the rows of named locks draw the tokens.
pub(crate) const ROWS_DRAW_TOKENS: bool = true;

/// Longer than the longest stall of a machine: no lease ends by itself, and no session that is silent for so long.
pub(crate) const TTL: Duration = Duration::from_secs(120);

/// Runs one case of `named_cases`.
pub(crate) async fn run(kind: Kind, case: &str, body: fn(Database) -> LocalBoxFuture<'static, ()>) {
    body(Database::create(&kind.shared().unwrap(), case).await).await;
}

pub(crate) async fn open(database: &Database) -> Store {
    open_at(&database.url()).await
}

pub(crate) async fn open_at(url: &str) -> Store {
    try_open_at(url).await.unwrap()
}

pub(crate) async fn try_open_at(url: &str) -> dlock::Result<Store> {
    named::open(url, &Clock::system()).await
}

pub(crate) fn key(database: &Database, text: &str) -> LockKey {
    LockKey::new(&database.name, Key::new().value(text)).unwrap()
}

impl Database {
    /// A claim in a namespace of the case's own.
    pub(crate) fn claim(&self, text: &str, ttl: Duration) -> Arc<Claim> {
        claim_on(&key(self, text), ttl, |_| ())
    }
}

impl Database {
    /// Somebody's transaction, which lets no token be drawn for this key until it is dropped.
    pub(crate) async fn hinder_draws(&self, name: &str) -> MySqlConnection {
        let mut conn = self.connect().await;
        let sql = format!("START TRANSACTION; SELECT 1 FROM dlock_named WHERE k = '{name}' FOR UPDATE");
        assert_eq!(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut conn).await.unwrap().len(), 1);
        conn
    }

    /// Somebody who keeps each draw of a token for this key waiting for as long as this connection lives, whatever the limits are.
    pub(crate) async fn stop_draws(&self, name: &str) -> MySqlConnection {
        let gate = format!("gate_{:08x}", fastrand::u32(..));
        let mut conn = self.connect().await;
        // The first draw of a key inserts its row, and each later one updates it.
        let triggers = ["INSERT", "UPDATE"].map(|event| {
            format!(
                "CREATE TRIGGER gate_{event} BEFORE {event} ON dlock_named FOR EACH ROW \
                 SET @gate = IF(NEW.k = '{name}', GET_LOCK('{gate}', 3600), 0)"
            )
        });
        let sql = format!("DO GET_LOCK('{gate}', 0); {}", triggers.join("; "));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        conn
    }

    /// Whether this session waits for a row, to draw a token.
    pub(crate) async fn a_draw_waits(&self, session: u64) -> bool {
        let draws = [self.running("INSERT INTO dlock_named").await, self.running("UPDATE dlock_named").await];
        draws.iter().flatten().any(|process| process.id == session.to_string())
    }
}

/// Whether somebody holds the lock of this name.
pub(crate) async fn is_used(database: &Database, name: &str) -> bool {
    database.lines(&format!("SELECT IS_USED_LOCK('{name}') IS NOT NULL")).await == ["1"]
}

/// The session that holds the lock, asked of the server by another way than the store's.
pub(crate) async fn session_of(database: &Database, text: &str) -> Option<u64> {
    session_of_name(database, key(database, text).as_str()).await
}

/// The same by the key's full name.
pub(crate) async fn session_of_name(database: &Database, name: &str) -> Option<u64> {
    let mut conn = database.connect().await;
    let sql = "SELECT CAST(IS_USED_LOCK(CONCAT('d1', SUBSTR(SHA2(?, 256), 1, 62))) AS UNSIGNED)";
    let (id,) = sqlx::query_as(sql).bind(name).fetch_one(&mut conn).await.unwrap();
    id
}
