//! Waits for a lock in several short transactions. Between two of them the waiter keeps the lock's turn.
//!
//! A statement that waits has a snapshot. `CREATE INDEX CONCURRENTLY` of a lock's holder waits for the end of each transaction
//! with an older snapshot, and the vacuum keeps the rows that an old snapshot may see. So no transaction waits for long.
//!
//! A session that ends its wait leaves the server's queue. If each waiter did so, readers that come later would pass a writer. So
//! a waiter first takes the lock's turn, which is an advisory lock of its session: readers share it, and a writer has it alone
//! until it has the lock. Only those that wait for the turn lose their place with each piece.

use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::Clock;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgRow};

use crate::server::fault::state;

/// How long one transaction waits.
pub(crate) const PIECE_TIME: Duration = Duration::from_secs(2);

/// Frees a turn. The session of a waiter has no other advisory lock.
pub(crate) const FREE_TURN: &str = "SELECT pg_advisory_unlock_all()";

/// A wait for a lock. Each part is the text of statements.
pub(crate) struct Wait {
    /// Takes the turn.
    pub(crate) turn: String,
    /// Begins the transaction in which the lock is taken.
    pub(crate) begin: &'static str,
    /// Takes the lock.
    pub(crate) lock: String,
    /// Gives the turn up, once the lock is taken.
    pub(crate) end: String,
    /// Frees a lock that was granted in the moment in which a piece ended.
    pub(crate) undo: String,
    pub(crate) time: Duration,
    /// After so much silence the server ends the session, which may have the turn.
    pub(crate) silence: Duration,
}

/// Waits for a lock, and returns the rows of the last message. Fails with the code 55P03 if the time runs out. After an error of
/// the server, the session may be in an aborted transaction and still have the turn.
pub(crate) async fn wait(conn: &mut PgConnection, clock: &Clock, wait: &Wait) -> sqlx::Result<Vec<PgRow>> {
    let Wait { turn, begin, lock, end, undo, time, silence } = wait;
    let (until, silence) = (clock.now().after(*time), silence.as_millis());
    let set = format!("SET idle_session_timeout = {silence}");
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *conn).await?;
    in_pieces(conn, clock, until, ("BEGIN", &format!("{turn}; COMMIT"), FREE_TURN)).await?;
    let lock = format!("SET LOCAL idle_in_transaction_session_timeout = {silence}; {lock}; {end}");
    in_pieces(conn, clock, until, (begin, &lock, undo)).await
}

async fn in_pieces(
    conn: &mut PgConnection,
    clock: &Clock,
    until: BootInstant,
    (begin, take, undo): (&str, &str, &str),
) -> sqlx::Result<Vec<PgRow>> {
    loop {
        // Zero would mean no limit.
        let millis = until.since(clock.now()).min(PIECE_TIME).as_millis().max(1);
        let sql = format!("{begin}; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {millis}; {take}");
        match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *conn).await {
            Err(error) if state(&error).as_deref() == Some("55P03") && clock.now() < until => {
                sqlx::raw_sql(AssertSqlSafe(format!("ROLLBACK; {undo}"))).execute(&mut *conn).await?;
            }
            answer => return answer,
        }
    }
}
