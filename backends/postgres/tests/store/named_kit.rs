//! Advisory locks in a database of PostgreSQL.

use std::time::{Duration, Instant};

use dlock::Clock;
use dlock_contract::{Attempt, Backend, Hold, Queue, Signal};
use dlock_postgres::{Postgres, named};
use dlock_sql::NamedLock;
use dlock_testkit::holds::until;
use sqlx::postgres::PgConnection;
use tokio::task::JoinHandle;

use crate::kit::in_time;
pub(crate) use crate::kit::{Database, TTL, key};

/// Named locks.
pub(crate) type Store = NamedLock<Postgres>;

/// Whether the rows of named locks draw the tokens.
pub(crate) const ROWS_DRAW_TOKENS: bool = false;

pub(crate) async fn open(database: &Database) -> Store {
    open_at(&database.url()).await
}

pub(crate) async fn open_at(url: &str) -> Store {
    in_time(async || try_open_at(url).await).await
}

pub(crate) async fn try_open_at(url: &str) -> dlock::Result<Store> {
    named::open(url, &Clock::system()).await
}

/// A hold of this store, and the wait of another one for it, in a database whose limits may end new sessions.
pub(crate) async fn held_and_waited_for(
    database: &Database,
    [one, other]: [&Store; 2],
) -> (Hold, JoinHandle<dlock::Result<Signal>>) {
    let (first, second) = (database.claim("a", TTL), database.claim("a", TTL));
    let hold = in_time(async || one.try_acquire(&first, Queue::Leave).await).await;
    let Attempt::Acquired(hold) = hold else { panic!("{hold:?}") };
    loop {
        let waits = in_time(async || other.try_acquire(&second, until()).await).await;
        let Attempt::Contended(wake) = waits else { panic!("two holders") };
        let mut waiting = tokio::spawn(wake.signal.unwrap());
        tokio::select! {
            () = database.until_one_waits() => return (hold, waiting),
            answer = &mut waiting => assert!(answer.unwrap().is_err_and(|error| error.is_retryable())),
        }
    }
}

/// Whether somebody holds the lock of this number.
pub(crate) async fn is_used(database: &Database, number: &str) -> bool {
    !database.lines(&format!("SELECT pid FROM pg_locks WHERE granted AND {}", of(number))).await.is_empty()
}

/// The session that holds the lock, asked of the server by another way than the store's.
pub(crate) async fn session_of(database: &Database, text: &str) -> Option<u64> {
    session_of_name(database, key(database, text).as_str()).await
}

/// The same by the key's full name.
pub(crate) async fn session_of_name(database: &Database, name: &str) -> Option<u64> {
    let number = format!("('x' || left(encode(sha256('{}'), 'hex'), 16))::bit(64)::bigint", name.replace('\'', "''"));
    let found = database.lines(&format!("SELECT pid FROM pg_locks WHERE granted AND {}", of(&number))).await;
    found.first().map(|pid| pid.parse().unwrap())
}

fn of(number: &str) -> String {
    format!(
        "locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = {number} \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
}

impl Database {
    /// Waits until one session waits for a lock of this database.
    pub(crate) async fn until_one_waits(&self) {
        self.until_wait(1).await;
    }

    /// The same for several.
    pub(crate) async fn until_wait(&self, expected: usize) {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let count = self.lines(sql).await;
            if count == [expected.to_string()] {
                return;
            }
            assert!(Instant::now() < end, "{count:?} sessions wait");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Somebody's transaction, which lets no token be drawn for a key until it is dropped: the sequence is behind the clock,
    /// and nobody can set it.
    pub(crate) async fn hinder_draws(&self, _: &str) -> PgConnection {
        let mut conn = self.connect().await;
        let sql = "SELECT setval('dlock_tokens', 1); BEGIN; SELECT 1 FROM dlock_named WHERE k = '' FOR UPDATE";
        assert_eq!(sqlx::raw_sql(sql).fetch_all(&mut conn).await.unwrap().len(), 2);
        conn
    }

    /// Somebody who keeps each draw of a token for this key waiting for as long as this connection lives, whatever the limits are.
    pub(crate) async fn stop_draws(&self, name: &str) -> PgConnection {
        let mut conn = self.connect().await;
        let sql = format!(
            "SELECT pg_advisory_lock(4711); \
             CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP BEGIN \
                 WHILE NOT pg_try_advisory_xact_lock_shared(4711) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; \
             EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$; \
             CREATE TRIGGER gate BEFORE INSERT ON dlock_named FOR EACH ROW WHEN (NEW.k = '{name}') \
                 EXECUTE FUNCTION wait_at_gate()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        conn
    }

    /// Whether this session waits for a row, to draw a token.
    pub(crate) async fn a_draw_waits(&self, session: u64) -> bool {
        let sql = format!("SELECT 1 FROM pg_locks WHERE pid = {session} AND NOT granted");
        !self.lines(&sql).await.is_empty()
    }

    pub(crate) async fn kill(&self, session: u64) {
        assert_eq!(self.lines(&format!("SELECT pg_terminate_backend({session})")).await, ["t"]);
    }
}
