//! Ends sessions in the server, over the monitor's connection: of holds whose release had no answer, and sessions that have ended
//! only on our side.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Mode, Result};

use super::dialect::NamedDialect;
use super::held::Held;
use super::monitor::{SessionMonitor, on_our_thread};
use super::requests::run;
use crate::dialect::{MarkedSession, Value};
use crate::session_hold::monitor_connection::LOOK_TIMEOUT;

/// How often the server is asked whether a session that it should end has ended.
const END_POLL_PAUSE: Duration = Duration::from_millis(5);

/// The data of a hold that the end of its session needs.
struct ToEnd {
    mode: Mode,
    row: String,
    ids: Vec<String>,
    session: i64,
}

impl<D: NamedDialect> SessionMonitor<D> {
    /// Ends the server's session of a hold, unless the hold is over. True if the server had the hold until then.
    ///
    /// This is for a session that has ended on our side without an answer to the release. A network that swallows
    /// answers may also swallow the end of the connection. The server would then keep the lock until the ttl is over.
    pub(super) async fn end_session(self: &Arc<Self>, held: &Held<D>) -> Result<bool> {
        let ids = held.ids().map(|id| id.to_string()).collect();
        let held = ToEnd { mode: held.mode, row: held.row.clone(), ids, session: held.session().id().number };
        let monitor = self.clone();
        on_our_thread(async move { monitor.ending(Some(&held)).await }).await
    }

    /// Ends the sessions that have ended only on our side, so that none of their requests arrives later.
    pub(super) async fn end_left(self: &Arc<Self>) -> Result<()> {
        if self.context.left_sessions.left().is_empty() {
            return Ok(());
        }
        let monitor = self.clone();
        on_our_thread(async move { monitor.ending(None).await.map(drop) }).await
    }

    /// Ends each such session as soon as there is one, for as long as the store lives.
    pub(super) async fn end_each_left(self: Arc<Self>) {
        loop {
            self.context.left_sessions.wait().await;
            while self.end_left().await.is_err() {
                self.context.clock.sleep_until(self.context.clock.now().after(LOOK_TIMEOUT)).await;
            }
        }
    }

    /// Ends the session of this hold. Without a hold, ends the sessions that have ended only on our side.
    async fn ending(&self, held: Option<&ToEnd>) -> Result<bool> {
        let about = (self, held);
        let ending = self.connection.ask(&self.context.dialect, "end a silent session", &about, |_, conn, about| {
            Box::pin(about.0.end_over(conn, about.1))
        });
        ending.await.map(|(ended, _)| ended)
    }

    /// Looks at the row first. It names the hold, so a later session of the same number is not ended.
    async fn end_over(&self, conn: &mut D::Conn, held: Option<&ToEnd>) -> sqlx::Result<bool> {
        let Some(held) = held else { return self.end_left_over(conn).await };
        let stands = &self.context.statements.holders(held.mode).stands;
        let mut is_told = false;
        for id in &held.ids {
            while !run(&self.context, conn, stands, &[Value::Text(&held.row), Value::Text(id)]).await?.rows.is_empty() {
                if !std::mem::replace(&mut is_told, true) {
                    self.context.dialect.end_session(conn, held.session).await?;
                }
                self.context.clock.sleep_until(self.context.clock.now().after(END_POLL_PAUSE)).await;
            }
        }
        Ok(is_told)
    }

    async fn end_left_over(&self, conn: &mut D::Conn) -> sqlx::Result<bool> {
        let (context, mut were_left) = (&self.context, false);
        loop {
            let left = context.left_sessions.left();
            for session in &left {
                let Some(mark) = &session.mark else { continue };
                match context.dialect.end_marked(conn, mark).await? {
                    MarkedSession::Ends => {
                        session.note_left();
                        were_left = true;
                    }
                    MarkedSession::Gone => context.left_sessions.remove(session),
                    // The server ends it some day, and no request may wait for that.
                    MarkedSession::OfAnotherAccount => {
                        context.collisions.note_of_another_account();
                        context.left_sessions.remove(session);
                    }
                }
            }
            if left.is_empty() {
                return Ok(were_left);
            }
            context.clock.sleep_until(context.clock.now().after(END_POLL_PAUSE)).await;
        }
    }
}
