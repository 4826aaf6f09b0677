//! Detects a pooler that gives each transaction another session of the server, as PgBouncer does in transaction mode.
//!
//! A pooler does not report itself. Without one, each session of the server belongs to one connection. So if one session
//! answers on two open connections, or two sessions answer on one connection, a pooler is in between.

use dlock_contract::Result;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use crate::server::fault::fault;

/// Whether both connections share the server's sessions. Closes the other connection afterwards.
pub(crate) async fn shares_sessions(one: &mut PgConnection, mut other: PgConnection) -> Result<bool> {
    let before = session(one).await?;
    // While this transaction is open, its session serves no other connection.
    let mut transaction = other.begin().await.map_err(fault)?;
    let held = session(&mut transaction).await?;
    // If the session has answered on the first connection before, that is the answer. A second request could hang: the
    // pooler may have only this session.
    let is_shared = before == held || before != session(one).await?;
    transaction.rollback().await.map_err(fault)?;
    // It is asked for nothing more.
    let _ = other.close().await;
    Ok(is_shared)
}

/// Sent as one message. A pooler could give the parts of a prepared statement to different sessions.
async fn session(conn: &mut PgConnection) -> Result<i32> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(conn).await.map_err(fault)?;
    row.try_get(0).map_err(fault)
}
