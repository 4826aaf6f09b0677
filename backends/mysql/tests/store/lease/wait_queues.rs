//! The wait queues as the server sees them.

use dlock_testkit::wait_until;
use sqlx::{AssertSqlSafe, Connection};

use super::kit::Database;

/// The session with the turn of each row of the database, by the frozen form of a queue's name.
const TURN_SESSIONS: &str = "\
    SELECT holder FROM (SELECT IS_USED_LOCK(CONCAT('dr', LEFT(SHA2( \
        CONCAT('dlock room', CHAR(0), DATABASE(), CHAR(0), k), 256), 62))) AS holder FROM dlock_locks) AS turns \
    WHERE holder IS NOT NULL";

impl Database {
    /// The sessions that have a turn.
    pub(crate) async fn turn_sessions(&self) -> Vec<String> {
        self.lines(&TURN_SESSIONS.replace("SELECT holder", "SELECT CAST(holder AS CHAR)")).await
    }

    /// The sessions that wait for a turn.
    pub(crate) async fn waiting_sessions(&self) -> Vec<String> {
        let processes = self.processes().await.into_iter();
        processes.filter(|process| process.state == "User lock").map(|process| process.id).collect()
    }

    pub(crate) async fn end_session(&self, session: &str) {
        let mut conn = self.outside().await;
        // It may have ended by itself.
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
        conn.close().await.unwrap();
        wait_until("the session ends", async || !self.sessions().await.iter().any(|one| one == session)).await.unwrap();
    }

    /// Another database of the same server.
    pub(crate) async fn beside(&self) -> Self {
        Self::create(&self.url(), "beside").await
    }
}
