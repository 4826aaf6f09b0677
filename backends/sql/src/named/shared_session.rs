//! A session of the server that several locks share: which of them have a place in it, and what is known of its life.

use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{BootInstant, Clock, Error, LockKey, Result};
use tokio::sync::watch;

use super::dialect::{NamedDialect, SessionId};
use super::drive::{AfterRequest, SessionJob, SessionRequest, drive};
use super::driver::{Driver, Jobs};
use super::left_sessions::LeftSessions;
use super::name::LockName;
use super::requests::Failure;
use super::statements::NamedStatements;
use crate::collisions::Collisions;
use crate::dialect::Value;
use crate::row::{RowName, row_name};
use crate::session_mark::SessionMark;
use crate::settings::Settings;
use crate::silence::{LastHeard, SessionActivity};

/// The most locks of one session.
const MOST_LOCKS: usize = 64;

/// The parts that all sessions of a store share.
#[derive(Debug)]
pub(super) struct NamedContext<D> {
    pub(super) dialect: D,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) statements: NamedStatements,
    /// Those about what holds for a whole namespace.
    pub(super) common: crate::statements::LeaseStatements,
    pub(super) collisions: Collisions,
    pub(super) left_sessions: LeftSessions,
}

/// A lock, as the server and the table know it.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) name: LockName,
    pub(super) row: RowName,
}

impl<D: NamedDialect> NamedContext<D> {
    /// The lock of a key.
    ///
    /// # Errors
    /// For a key that has no literal name, if names are literal.
    pub(super) fn lock_of(&self, key: &LockKey) -> Result<Lock> {
        let key = if self.settings.is_literal { &key.literal()? } else { key };
        Ok(Lock { name: self.dialect.lock_name(key)?, row: row_name(key) })
    }

    /// Raises the sequence that tokens are drawn from above all earlier ones, if the server has forgotten some. If it
    /// `is_behind` the clock, it is raised in any case.
    pub(super) async fn raise_tokens(&self, conn: &mut D::Conn, is_behind: bool) -> sqlx::Result<()> {
        let Some(sequence) = &self.statements.sequence else { return Ok(()) };
        self.dialect.run(conn, &sequence.raise, &[Value::Int(is_behind.into())]).await.map(drop)
    }
}

/// A session of the server, for up to [`MOST_LOCKS`] locks. It ends when nobody has it any more.
pub(super) struct SharedSession<D: NamedDialect> {
    pub(super) shared: Arc<SessionStatus>,
    driver: Arc<Driver<SessionJob<D>>>,
}

/// The parts that the task shares with its callers.
#[derive(Debug)]
pub(super) struct SessionStatus {
    pub(super) id: SessionId,
    /// By it another session may end this one.
    pub(super) mark: Option<SessionMark>,
    clock: Clock,
    /// After so much silence the server ends it.
    pub(super) ttl: Duration,
    state: Mutex<SessionLocks>,
    /// Requests that have not ended.
    pub(super) queued: AtomicUsize,
    /// When the server should have answered the request that is under way; 0 if none is.
    due: AtomicU64,
    ended_by_server: AtomicBool,
    was_silent: AtomicBool,
    was_left: AtomicBool,
    pub(super) ended: watch::Sender<bool>,
    pub(super) heard: watch::Sender<Heard>,
    /// The same, also by what the server says of it to others.
    last_heard: Mutex<LastHeard>,
}

/// The locks of the session, and who may still use it.
#[derive(Debug, Default)]
pub(super) struct SessionLocks {
    /// The numbers of the locks that it holds or is being asked for. One lock is never asked for twice: it would be granted
    /// twice.
    locks: HashSet<i64>,
    /// How many of them are being freed, and since when the last one is.
    releasing: usize,
    release_begun: Option<BootInstant>,
    /// It takes no other lock: it waits, or has a hold that is not renewed.
    is_alone: bool,
    is_closed: bool,
    /// A question whether it lives is under way. It answers all who ask meanwhile.
    pub(super) is_asked: bool,
}

/// The last answer to the question whether it lives.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) round: u64,
    /// When the last request left that was answered.
    pub(super) at: BootInstant,
    pub(super) refused: Option<Arc<Error>>,
}

impl<D: NamedDialect> SharedSession<D> {
    /// Opens a session that the server ends after so much silence.
    pub(super) async fn open(context: &Arc<NamedContext<D>>, ttl: Duration) -> Result<Arc<Self>> {
        let timeout = context.settings.connect_timeout;
        let from = context.clock.now();
        let opened = context.clone();
        // On our thread, whoever asks: a connection lives no longer than the runtime in which it was opened.
        let opening = background()?.run(async move {
            let opening = async {
                let (mut conn, id) = opened.dialect.connect_named().await?;
                opened.dialect.end_after(&mut conn, ttl).await?;
                opened.raise_tokens(&mut conn, false).await.map_err(|error| opened.dialect.fault(error))?;
                let mark = opened.dialect.mark(&mut conn).await.map_err(|error| opened.dialect.fault(error))?;
                Ok((conn, id, mark))
            };
            let late = || Error::outage(format!("the server did not accept a connection within {timeout:?}"));
            opened.clock.timeout_at(opened.clock.now().after(timeout), opening).await.ok_or_else(late)?
        });
        let (conn, id, mark) = opening.await?.map_err(Error::never_sent)?;
        let shared = Arc::new(SessionStatus {
            id,
            mark,
            clock: context.clock.clone(),
            ttl,
            state: Mutex::default(),
            queued: AtomicUsize::new(0),
            due: AtomicU64::new(0),
            ended_by_server: AtomicBool::new(false),
            was_silent: AtomicBool::new(false),
            was_left: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            heard: watch::Sender::new(Heard { round: 0, at: from, refused: None }),
            last_heard: Mutex::new(LastHeard::new(from)),
        });
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

    /// Notes what the server says of it to others, who asked at this time, and tells when it was last not silent.
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

    /// Its locks are surely not held any more, or must not be. The socket closes.
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

    /// Whether the server had it after its end on our side, and so its locks, until another session ended it there.
    pub(super) fn was_left(&self) -> bool {
        self.shared.was_left.load(Ordering::Acquire)
    }

    /// So many requests are under way.
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

impl SessionStatus {
    pub(super) fn state(&self) -> MutexGuard<'_, SessionLocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes when an answer is due; `None` once it is there.
    pub(super) fn is_due(&self, at: Option<BootInstant>) {
        self.due.store(at.map_or(0, BootInstant::as_nanos), Ordering::Relaxed);
    }

    /// Notes that it is ended because it does not answer.
    pub(super) fn note_silence(&self) {
        self.was_silent.store(true, Ordering::Release);
    }

    /// Notes that the server has it still.
    pub(super) fn note_left(&self) {
        self.was_left.store(true, Ordering::Release);
    }

    /// Notes whether the session has ended, before anybody hears of the request by which it has.
    pub(super) fn note_end(self: &Arc<Self>, after: AfterRequest, left: &LeftSessions) {
        match after {
            AfterRequest::KeepSession => return,
            AfterRequest::EndSession => left.add(self),
            AfterRequest::EndedByServer => self.ended_by_server.store(true, Ordering::Release),
            AfterRequest::EndConnection => {}
        }
        self.ended.send_replace(true);
    }

    /// The failure of a request that was dropped because the session has ended.
    pub(super) fn failure(&self) -> Failure {
        let failure = Failure::ended_by(Error::outage("the session that was asked has ended"));
        Failure { by_server: self.ended_by_server.load(Ordering::Acquire), ..failure }
    }

    /// Whether each of its locks has been waiting for its release for so long.
    pub(super) fn only_releases_for(&self, time: Duration) -> bool {
        let now = self.clock.now();
        let state = self.state();
        let are_all = state.releasing > 0 && state.releasing == state.locks.len();
        are_all && state.release_begun.is_some_and(|begun| now.since(begun) >= time)
    }

    /// Closes it if it has no lock.
    pub(super) fn closes(&self) -> bool {
        let mut state = self.state();
        state.is_closed = state.locks.is_empty();
        state.is_closed
    }
}

impl SessionLocks {
    fn takes(&self, lock: i64, alone: bool) -> bool {
        let most = if alone { 1 } else { MOST_LOCKS };
        !self.is_closed && !self.is_alone && self.locks.len() < most && !self.locks.contains(&lock)
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
