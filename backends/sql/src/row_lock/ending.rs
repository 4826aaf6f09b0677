//! How a hold goes on and ends: the answer to a renewal, and the rollback.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, ErrorKind, Released, Result};
use tokio::sync::OwnedMutexGuard;

use super::aside::ask_aside;
use super::dialect::RowDialect;
use super::held::{HeldRow, ReleaseStatus};
use super::life::{Life, Work};
use super::monitor::TransactionStatus;
use super::sessions::{RowSession, STATEMENT_TIMEOUT};
use super::settle::refusal;
use super::shared::RowShared;
use crate::connection::misread::unless_misread;

/// How long the server may take to end a session.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the answer to a rollback that the server seems to have done.
const LATE_ROLLBACK_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a renewal pauses if it has learned nothing new about a session in use.
const SILENT_SESSION_WAIT: Duration = Duration::from_millis(250);
/// How long a renewal waits for the hold's own session before it asks the monitor.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

impl<D: RowDialect> RowShared<D> {
    /// Asks whether this hold still locks the row. If so, it counts from before the request.
    pub(super) async fn confirm(self: &Arc<Self>, held: &Arc<HeldRow<D>>) -> Result<Option<BootInstant>> {
        if held.has_ended() {
            return Ok(None);
        }
        let clock = self.context.clock.clone();
        let from = clock.now();
        // No statement of the body is under way, so its own session is asked. That also keeps the server from ending it for
        // its silence.
        if let Ok(slot) = held.slot.clone().try_lock_owned() {
            let pinged = held.clone();
            let asked = ask_aside(async move { Self::ping(&pinged, slot).await })?;
            // Without an answer, another task uses the transaction, or the rest of a dropped statement is still on its
            // way.
            let answered = clock.timeout_at(from.after(PING_TIMEOUT.min(held.ttl / 6)), asked).await;
            if let Some(Ok(Some(answer))) = answered {
                return answer.map(|is_held| is_held.then_some(from));
            }
        }
        let seen = match self.monitor.sees(held).await {
            TransactionStatus::Held if self.is_overtaken(held).await? => TransactionStatus::Ended,
            seen => seen,
        };
        match seen {
            TransactionStatus::Held => Ok(Some(self.heard(held, from).await)),
            TransactionStatus::Ended => {
                held.end();
                Ok(None)
            }
            TransactionStatus::Unknown => {
                Err(Error::outage("the server did not say whether the session of the lock lives"))
            }
        }
    }

    /// The time from which the ttl of a hold counts while its session is in use. A living session proves nothing: the
    /// server ends it after a silence, even if other sessions ask about it.
    async fn heard(&self, held: &HeldRow<D>, from: BootInstant) -> BootInstant {
        let (clock, before) = (&self.context.clock, held.heard_after());
        if let Ok((Some(activity), server)) = self
            .monitor
            .connection
            .ask(&held.id, |dialect, conn, id| Box::pin(dialect.activity(conn, id.session)))
            .await
            && server == *held.server
        {
            held.note_activity(activity, from);
        }
        if held.heard_after() <= before {
            // Without this pause, the engine would ask again at once.
            clock.sleep_until(clock.now().after(SILENT_SESSION_WAIT)).await;
        }
        held.heard_after()
    }

    /// Asks the hold's own session. `None` if the session is not there any more.
    async fn ping(held: &HeldRow<D>, mut slot: OwnedMutexGuard<Option<RowSession<D>>>) -> Option<Result<bool>> {
        let open = slot.as_mut()?;
        let answer = held.confirm_in_transaction(&mut open.conn).await;
        if matches!(answer, Ok(false)) {
            // If the session has ended, nobody can commit any more. The server frees the row as soon as it notices.
            held.end();
        }
        Some(answer)
    }

    /// Rolls back. Returns `Released` if the row was locked until the first call of this. After an error it may be
    /// called again, and returns `Released` once the row is free.
    pub(super) async fn undo(&self, held: &HeldRow<D>) -> Result<Released> {
        if held.life() == Life::Committed {
            return Ok(Released::Released);
        }
        // An earlier release goes on although its caller has gone, so wait for it.
        let mut status = held.release.lock().await;
        let answer = match *status {
            ReleaseStatus::Done(_) if held.life() == Life::Told => return Ok(Released::NotOwner),
            ReleaseStatus::Done(released) => return Ok(released),
            ReleaseStatus::NotBegun => self.undo_first(held).await,
            ReleaseStatus::Unanswered => self.end_session(held).await,
        };
        *status = match &answer {
            Ok(released) => ReleaseStatus::Done(*released),
            Err(error) if *error.kind() == ErrorKind::CommitRefused => ReleaseStatus::Done(Released::Released),
            Err(_) => ReleaseStatus::Unanswered,
        };
        answer
    }

    async fn undo_first(&self, held: &HeldRow<D>) -> Result<Released> {
        let ended = held.has_ended();
        let clock = &self.context.clock;
        // `None`: a statement of the body is under way, or a commit without an answer has used the session up.
        let open = held.begin_end(clock, STATEMENT_TIMEOUT).await.and_then(|mut slot| slot.take());
        let (mut is_late, mut seen) = (false, None);
        if let Some(mut open) = open {
            let mut undoing = Box::pin(unless_misread(self.context.dialect.undo(&mut open.conn, &held.id)));
            let mut undone = clock.timeout_at(clock.now().after(STATEMENT_TIMEOUT), undoing.as_mut()).await;
            if undone.is_none() {
                let status = self.monitor.sees_session(held).await;
                if status == TransactionStatus::Ended {
                    // If that was the rollback, its answer is on the way.
                    undone = clock.timeout_at(clock.now().after(LATE_ROLLBACK_TIMEOUT), undoing.as_mut()).await;
                }
                seen = Some(status);
            }
            drop(undoing);
            is_late = undone.is_none();
            if let Some(Ok(is_held)) = undone {
                self.sessions.give_back(open, held.work().has_begun());
                held.end();
                // No statement can begin any more.
                if held.work() == Work::Late {
                    return Err(refusal("a task of the body began a statement after the body's end"));
                }
                return Ok(if is_held && !ended { Released::Released } else { Released::NotOwner });
            }
            // The connection is dropped: it is broken, or a statement that the body gave up is still under way.
        }
        let seen = match seen {
            Some(seen) => seen,
            None => self.monitor.sees_session(held).await,
        };
        held.end();
        match seen {
            // The rollback may have ended the hold, although its answer was late.
            TransactionStatus::Ended if ended || !is_late => return Ok(Released::NotOwner),
            TransactionStatus::Ended => {}
            TransactionStatus::Held | TransactionStatus::Unknown => match self.kill(held).await? {
                _ if seen == TransactionStatus::Held && !ended => return Ok(Released::Released),
                KilledSession::Ended if ended => return Ok(Released::NotOwner),
                _ => {}
            },
        }
        Err(Error::outage("nobody knows whether the row was locked to the end: its session did not answer"))
    }

    /// Ends the session of a release without an answer, and the transaction with it.
    async fn end_session(&self, held: &HeldRow<D>) -> Result<Released> {
        if self.monitor.sees_session(held).await == TransactionStatus::Ended {
            return Ok(Released::Released);
        }
        match self.kill(held).await? {
            KilledSession::Ended => Ok(Released::Released),
            KilledSession::OfAnotherServer => Ok(Released::NotOwner),
            KilledSession::Lives => Err(Error::outage("the server has not ended the session of the lock yet")),
        }
    }

    /// Ends the session, and the transaction with it.
    async fn kill(&self, held: &HeldRow<D>) -> Result<KilledSession> {
        let clock = &self.context.clock;
        let until = clock.now().after(KILL_TIMEOUT);
        if let Some(session) = &held.mark
            && !self.monitor.connection.kill(session, &held.server).await?
        {
            return Ok(KilledSession::OfAnotherServer);
        }
        while self.monitor.sees_session(held).await != TransactionStatus::Ended {
            if clock.now() >= until {
                return Ok(KilledSession::Lives);
            }
            clock.sleep_until(clock.now().after(Duration::from_millis(5))).await;
        }
        Ok(KilledSession::Ended)
    }
}

/// The end of a request to end a session.
enum KilledSession {
    Ended,
    Lives,
    /// After a failover another server answers. The hold is over there.
    OfAnotherServer,
}
