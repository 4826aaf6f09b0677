//! One hold: a transaction that keeps a row locked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Owner, Released, Result};
use dlock_store::{Clock, background};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::dialect::{RowDialect, RowId};
use super::life::{Life, Work};
use super::monitor_connection::RowMonitorConnection;
use super::record::Record;
use super::sessions::{RowSession, RowSessions};
use crate::connection::misread::unless_misread;
use crate::connection::pending_attempts::{PendingAttempt, PendingAttempts};
use crate::connection::session::refused;
use crate::dialect::{Refusal, SessionActivity, SessionMark};
use crate::session_hold::silence::LastHeard;
use crate::tables::row_table::RowKey;

/// The session of a hold. `None` once the transaction has ended.
pub(super) type Slot<D> = Arc<Mutex<Option<RowSession<D>>>>;

/// One hold. Dropping it rolls back.
pub struct HeldRow<D: RowDialect> {
    pub(super) owner: Owner,
    pub(super) id: RowId,
    pub(super) server: Arc<str>,
    pub(super) mark: Option<SessionMark>,
    pub(super) record: Record,
    pub(super) row: RowKey,
    pub(super) token: u64,
    pub(super) since: BootInstant,
    pub(super) ttl: Duration,
    pub(super) slot: Slot<D>,
    heard: std::sync::Mutex<LastHeard>,
    life: watch::Sender<Life>,
    work: std::sync::Mutex<Work>,
    /// The body's one handle of the transaction keeps it locked.
    pub(super) handle: Arc<Mutex<()>>,
    /// The progress of the release. Only one release at a time asks the server.
    pub(super) release: Mutex<ReleaseStatus>,
    pub(super) sessions: Arc<RowSessions<D>>,
    monitor_connection: Arc<RowMonitorConnection<D>>,
    pending_attempts: Arc<PendingAttempts>,
}

/// The progress of a release.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReleaseStatus {
    /// No release was asked for.
    NotBegun,
    /// The release had no answer, so the server may still keep the row locked.
    Unanswered,
    /// The hold is over, with this answer to its release.
    Done(Released),
}

/// A hold as it was granted.
pub(super) struct RowGrant<D: RowDialect> {
    pub(super) owner: Owner,
    pub(super) id: RowId,
    pub(super) record: Record,
    pub(super) row: RowKey,
    pub(super) token: u64,
    /// A time before the request whose answer showed that the row is locked.
    pub(super) since: BootInstant,
    pub(super) open: RowSession<D>,
}

impl<D: RowDialect> dlock_contract::Session for HeldRow<D> {
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut life = self.life.subscribe();
        // An error means that the hold was dropped.
        Some(Box::pin(async move { drop(life.wait_for(|life| *life >= Life::Ended).await) }))
    }
}

impl<D: RowDialect> HeldRow<D> {
    pub(super) fn new(
        granted: RowGrant<D>,
        sessions: &Arc<RowSessions<D>>,
        monitor_connection: &Arc<RowMonitorConnection<D>>,
        pending_attempts: &Arc<PendingAttempts>,
    ) -> Self {
        let RowGrant { owner, id, record, row, token, since, open } = granted;
        Self {
            owner,
            id,
            server: open.server.clone(),
            mark: open.mark.clone(),
            record,
            row,
            token,
            since,
            ttl: open.ttl,
            slot: Arc::new(Mutex::new(Some(open))),
            heard: std::sync::Mutex::new(LastHeard::new(since)),
            life: watch::Sender::new(Life::Held),
            work: std::sync::Mutex::new(Work::None),
            handle: Arc::default(),
            release: Mutex::new(ReleaseStatus::NotBegun),
            sessions: sessions.clone(),
            monitor_connection: monitor_connection.clone(),
            pending_attempts: pending_attempts.clone(),
        }
    }

    pub(super) fn life(&self) -> Life {
        *self.life.borrow()
    }

    /// Notes that the hold has come so far, and returns how far it had come before.
    pub(super) fn advance(&self, to: Life) -> Life {
        let mut before = to;
        self.life.send_if_modified(|life| {
            before = *life;
            *life = before.max(to);
            before < Life::Ended && to >= Life::Ended
        });
        before
    }

    pub(super) fn has_ended(&self) -> bool {
        self.life() >= Life::Ended
    }

    /// Notes that the hold has ended for certain.
    pub(super) fn end(&self) {
        self.advance(Life::Ended);
    }

    /// Whether the monitor must look at the hold.
    pub(super) fn is_watched(&self) -> bool {
        self.life() < Life::Ending
    }

    pub(super) fn work(&self) -> Work {
        *self.work.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes what has become of the body's work.
    pub(super) fn note_work(&self, after: fn(Work) -> Work) -> Work {
        let mut work = self.work.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *work = after(*work);
        *work
    }

    /// Whether somebody uses its session now, such as a statement of the body.
    pub(super) fn is_in_use(&self) -> bool {
        self.slot.try_lock().is_err()
    }

    /// Notes that the session was active after this time.
    pub(super) fn note_heard(&self, after: BootInstant) {
        self.heard().note(after);
    }

    /// Notes the activity of this hold's session, as the server reported it to another session at this time.
    pub(super) fn note_activity(&self, activity: SessionActivity, asked: BootInstant) {
        self.heard().note_activity(activity, asked);
    }

    /// The time from which the ttl counts.
    pub(super) fn heard_after(&self) -> BootInstant {
        self.heard().after()
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, LastHeard> {
        self.heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the session out of the hold, to end the transaction, if the session is free within this time. After that
    /// nobody can take it.
    pub(super) async fn begin_end(
        &self,
        clock: &Clock,
        within: Duration,
    ) -> Option<OwnedMutexGuard<Option<RowSession<D>>>> {
        self.advance(Life::Ending);
        clock.timeout_at(clock.now().after(within), self.slot.clone().lock_owned()).await
    }

    /// Whether its session is still in the transaction with the row.
    pub(super) async fn confirm_in_transaction(&self, conn: &mut D::Conn) -> Result<bool> {
        let context = &self.sessions.context;
        let (dialect, asked) = (&context.dialect, context.clock.now());
        match unless_misread(dialect.is_in(conn, &self.id)).await {
            Ok(true) => {
                self.note_heard(asked);
                self.note_work(Work::seen);
                Ok(true)
            }
            Err(error) if dialect.refusal(&error) == Refusal::SessionEnded => Ok(false),
            answer => answer.map_err(|error| refused(dialect, error)),
        }
    }
}

impl<D: RowDialect> Drop for HeldRow<D> {
    /// Rolls back in the background, so that the connection can be used again.
    fn drop(&mut self) {
        let Ok(background) = background() else { return };
        let Some(open) = self.slot.clone().try_lock_owned().ok().and_then(|mut slot| slot.take()) else { return };
        // A later abandon waits for this rollback.
        let (pending_attempt, id, has_work) =
            (self.pending_attempts.begin(self.owner), self.id.clone(), self.work().has_begun());
        let (sessions, connection, mark) = (self.sessions.clone(), self.monitor_connection.clone(), self.mark.clone());
        let (server, ttl) = (self.server.clone(), self.ttl);
        background.spawn(async move {
            let _pending_attempt: PendingAttempt = pending_attempt;
            if !sessions.roll_back(open, &id, has_work).await
                && let Some(mark) = mark
            {
                connection.end_left(&mark, &server, ttl).await;
            }
        });
    }
}

impl<D: RowDialect> fmt::Debug for HeldRow<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRow").field("record", &self.record.name).field("id", &self.id).finish_non_exhaustive()
    }
}
