//! Finds out whether a pooler gives each transaction another session of the server, as PgBouncer does in transaction mode.
//!
//! A pooler tells nobody that it is there. But a session of the server belongs to one connection otherwise: if two
//! connections that are both open are answered by one session, or one connection by two sessions, a pooler is between.

use dlock_contract::Result;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use crate::server::fault::fault;

/// The other connection is closed afterwards.
pub(crate) async fn gives_sessions_in_turn(one: &mut PgConnection, mut other: PgConnection) -> Result<bool> {
    let before = session(one).await?;
    // While this transaction is open, its session is nobody else's.
    let mut transaction = other.begin().await.map_err(fault)?;
    let held = session(&mut transaction).await?;
    // If it is the one that answered before, nothing more is asked: a pooler with one session would not answer.
    let is_shared = before == held || before != session(one).await?;
    transaction.rollback().await.map_err(fault)?;
    // It is asked for nothing more.
    let _ = other.close().await;
    Ok(is_shared)
}

/// In one message. A pooler could give the parts of a prepared statement to different sessions.
async fn session(conn: &mut PgConnection) -> Result<i32> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(conn).await.map_err(fault)?;
    row.try_get(0).map_err(fault)
}
