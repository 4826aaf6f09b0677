//! A session of the server that several locks share: its task, and the places of the locks in it.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Result};
use dlock_store::background;
use tokio::sync::watch;

use super::context::NamedContext;
use super::dialect::{NamedDialect, SessionId};
use super::drive::{SessionJob, SessionRequest, drive};
use super::driver::{Driver, Jobs};
use super::name::LockName;
use super::session_status::SessionStatus;
use crate::dialect::SessionActivity;
use crate::session_hold::opening::opened;

/// A session of the server, for up to 64 locks. It ends when nobody has it any more.
pub(super) struct SharedSession<D: NamedDialect> {
    pub(super) shared: Arc<SessionStatus>,
    driver: Arc<Driver<SessionJob<D>>>,
}

impl<D: NamedDialect> SharedSession<D> {
    /// Opens a session that the server ends after so much silence.
    pub(super) async fn open(context: &Arc<NamedContext<D>>, ttl: Duration) -> Result<Arc<Self>> {
        context.closed.refuse()?;
        let from = context.clock.now();
        let of = context.clone();
        // On our thread, because a connection lives no longer than the runtime in which it was opened.
        let opening = background()?.run(async move {
            let opening = async {
                let (mut conn, id) = of.dialect.connect_named().await?;
                of.dialect.end_after(&mut conn, ttl).await?;
                of.raise_tokens(&mut conn, false).await.map_err(|error| of.dialect.fault(error))?;
                let mark = of.dialect.mark(&mut conn).await.map_err(|error| of.dialect.fault(error))?;
                Ok((conn, id, mark))
            };
            opened(&of.clock, of.settings.connect_timeout, opening).await
        });
        let (conn, id, mark) = opening.await??;
        let shared = SessionStatus::new(id, mark, &context.clock, ttl, from);
        let jobs = Jobs::new();
        let task = Box::pin(drive(context.clone(), conn, shared.clone(), jobs.clone()));
        let driver = Driver::new(jobs, task);
        let polled = driver.clone();
        background()?.spawn(poll_fn(move |cx| polled.poll(cx)));
        Ok(Arc::new(Self { shared, driver }))
    }

    pub(super) fn id(&self) -> SessionId {
        self.shared.id
    }

    pub(super) fn ttl(&self) -> Duration {
        self.shared.ttl
    }

    pub(super) fn heard(&self) -> BootInstant {
        self.shared.heard.borrow().at
    }

    /// Notes the activity that the server reports to another session, which asked at this time. Returns the end of the
    /// last activity.
    pub(super) fn heard_by_others(&self, activity: SessionActivity, asked: BootInstant) -> BootInstant {
        let mut last = self.shared.last_heard.lock().unwrap_or_else(PoisonError::into_inner);
        last.note(self.heard());
        last.note_activity(activity, asked);
        last.after()
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.shared.ended.borrow()
    }

    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.shared.ended.subscribe()
    }

    /// Ends the session: its locks are lost, or must be. The socket closes.
    pub(super) fn end(&self) {
        self.shared.ended.send_replace(true);
    }

    /// Whether an answer is overdue, as when the network is dead. The server may end such a session only after its ttl.
    pub(super) fn is_silent(&self, now: BootInstant) -> bool {
        let due = self.shared.due.load(Ordering::Relaxed);
        due != 0 && due < now.as_nanos()
    }

    /// Whether we have ended it because it did not answer.
    pub(super) fn was_silent(&self) -> bool {
        self.shared.was_silent.load(Ordering::Acquire)
    }

    /// Whether the server still had the session, and so its locks, after its end on our side, until another session
    /// ended it there.
    pub(super) fn was_left(&self) -> bool {
        self.shared.was_left.load(Ordering::Acquire)
    }

    /// The number of requests that are under way.
    pub(super) fn queued(&self) -> usize {
        self.shared.queued.load(Ordering::Relaxed)
    }

    pub(super) fn locks(&self) -> usize {
        self.shared.state().locks.len()
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.has_ended() && !self.shared.state().is_closed
    }

    /// Whether others may use it too.
    pub(super) fn is_open(&self) -> bool {
        self.is_usable() && !self.shared.state().is_alone
    }

    /// Whether it may take this lock beside those that it has; alone: whether it has none.
    pub(super) fn takes(&self, lock: &LockName, alone: bool) -> bool {
        !self.has_ended() && self.shared.state().takes(lock.number, alone)
    }

    /// Queues a request for the session's task, and polls that task. If it has ended, the request is dropped, and its caller
    /// hears of that. None of the session's state may be locked meanwhile.
    pub(super) fn push(&self, wait: Duration, request: SessionRequest<D>) {
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        self.driver.push(SessionJob { request, wait });
    }

    /// A place for this lock, if the session takes it.
    pub(super) fn place(self: &Arc<Self>, lock: &LockName, alone: bool) -> Option<LockPlace<D>> {
        let mut state = self.shared.state();
        if self.has_ended() || !state.takes(lock.number, alone) {
            return None;
        }
        state.locks.insert(lock.number);
        state.is_alone = alone;
        Some(LockPlace { session: self.clone(), lock: lock.number, is_releasing: false })
    }

    /// Ends it if it has no other lock than one that must go.
    pub(super) fn end_if_alone(&self) -> bool {
        let mut state = self.shared.state();
        if state.locks.len() > 1 {
            return false;
        }
        // Nobody comes in meanwhile.
        state.is_closed = true;
        drop(state);
        self.end();
        true
    }
}

impl<D: NamedDialect> Drop for SharedSession<D> {
    fn drop(&mut self) {
        self.driver.close();
    }
}

/// A lock's place in a session, which nobody else asks for meanwhile. It is free again when this is dropped.
pub(super) struct LockPlace<D: NamedDialect> {
    session: Arc<SharedSession<D>>,
    lock: i64,
    is_releasing: bool,
}

impl<D: NamedDialect> LockPlace<D> {
    pub(super) fn session(&self) -> &Arc<SharedSession<D>> {
        &self.session
    }

    /// Lets other locks share the session.
    pub(super) fn share(&self) {
        self.session.shared.state().is_alone = false;
    }

    /// Notes that the lock is being freed, or not any more: it is the next caller's.
    pub(super) fn note_release(&mut self, begins: bool) {
        let now = self.session.shared.clock.now();
        if std::mem::replace(&mut self.is_releasing, begins) == begins {
            return;
        }
        let mut state = self.session.shared.state();
        match begins {
            true => (state.releasing, state.release_begun) = (state.releasing + 1, Some(now)),
            false => state.releasing -= 1,
        }
    }
}

impl<D: NamedDialect> Drop for LockPlace<D> {
    fn drop(&mut self) {
        let mut state = self.session.shared.state();
        state.locks.remove(&self.lock);
        state.releasing -= usize::from(self.is_releasing);
        state.is_alone &= !state.locks.is_empty();
    }
}

impl<D: NamedDialect> fmt::Debug for SharedSession<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSession")
            .field("id", &self.shared.id)
            .field("ttl", &self.shared.ttl)
            .finish_non_exhaustive()
    }
}

impl<D: NamedDialect> fmt::Debug for LockPlace<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockPlace").field("lock", &self.lock).finish_non_exhaustive()
    }
}
