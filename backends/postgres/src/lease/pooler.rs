//! Detects a pooler, and whether it gives each transaction another session of the server, as PgBouncer does in transaction mode.
//!
//! A pooler does not report itself. But a session begins with what its client sends, and a server keeps that. So a connection that
//! has sent a random mark, and finds it in its session, has made that session: no pooler is in between. A pooler refuses the mark
//! or leaves it out. Then many looks decide, since under load one look finds the same session again by chance.

use dlock_contract::Result;
use dlock_store::Clock;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use crate::server::Server;
use crate::server::fault::fault;

/// How often a pooler's sessions are compared. With two sessions, chance gives one right answer in two each time.
const LOOK_COUNT: u32 = 16;

/// The way from a connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Nothing that is known: it may be a pooler of transactions.
    Unknown,
    /// The connection has made its session.
    Direct,
    /// A pooler that gives each connection a session of its own.
    SessionPooler,
    /// A pooler that gives each transaction another session.
    TransactionPooler,
}

impl Path {
    /// Whether a connection has a session of its own.
    pub(crate) fn keeps_session(self) -> bool {
        matches!(self, Self::Direct | Self::SessionPooler)
    }
}

/// Finds the way from this connection to the server. Sends no setting that stays.
pub(crate) async fn find(server: &Server, clock: &Clock, one: &mut PgConnection) -> Result<Path> {
    let mark = format!("{:x}", fastrand::u128(..));
    let (mut other, is_marked) = match server.connect_marked(clock, &mark).await {
        Ok((mut other, _)) => {
            let is_marked = ask(&mut other, "SELECT current_setting('dlock.mark', true)").await? == Some(mark);
            (other, is_marked)
        }
        Err(_) => (server.connect(clock).await?.0, false),
    };
    let mut is_shared = false;
    for _ in 0..if is_marked { 1 } else { LOOK_COUNT } {
        is_shared = is_shared || shares(one, &mut other).await?;
    }
    // It is asked for nothing more.
    let _ = other.close().await;
    Ok(match (is_shared, is_marked) {
        (true, _) => Path::TransactionPooler,
        (false, true) => Path::Direct,
        (false, false) => Path::SessionPooler,
    })
}

/// Whether two sessions answer on the first connection, or one of them on both.
async fn shares(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool> {
    let before = session(one).await?;
    // While this transaction is open, its session serves no other connection.
    let mut transaction = other.begin().await.map_err(fault)?;
    let held = session(&mut transaction).await?;
    // If the session has answered on the first connection before, that is the answer. A second request could hang: the
    // pooler may have only this session.
    let is_shared = before == held || before != session(one).await?;
    transaction.rollback().await.map_err(fault)?;
    Ok(is_shared)
}

async fn session(conn: &mut PgConnection) -> Result<Option<String>> {
    ask(conn, "SELECT pg_backend_pid()::text").await
}

/// Sent as one message. A pooler could give the parts of a prepared statement to different sessions.
async fn ask(conn: &mut PgConnection, sql: &'static str) -> Result<Option<String>> {
    sqlx::raw_sql(sql).fetch_one(conn).await.and_then(|row| row.try_get(0)).map_err(fault)
}
