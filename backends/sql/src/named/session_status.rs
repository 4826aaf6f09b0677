//! The state of a session that its task shares with its callers: its locks, and what is known of its life.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error};
use dlock_store::Clock;
use tokio::sync::watch;

use super::dialect::SessionId;
use super::failure::Failure;
use crate::dialect::SessionMark;
use crate::session_hold::silence::LastHeard;

/// The most locks of one session.
const MOST_LOCKS: usize = 64;

/// The parts that the task shares with its callers.
#[derive(Debug)]
pub(super) struct SessionStatus {
    pub(super) id: SessionId,
    /// By it another session may end this one.
    pub(super) mark: Option<SessionMark>,
    pub(super) clock: Clock,
    /// After so much silence the server ends it.
    pub(super) ttl: Duration,
    state: Mutex<SessionLocks>,
    /// Requests that have not ended.
    pub(super) queued: AtomicUsize,
    /// When the server should have answered the request that is under way; 0 if none is.
    pub(super) due: AtomicU64,
    pub(super) ended_by_server: AtomicBool,
    pub(super) was_silent: AtomicBool,
    pub(super) was_left: AtomicBool,
    pub(super) ended: watch::Sender<bool>,
    pub(super) heard: watch::Sender<Heard>,
    /// The last answer, or the last activity that the server has reported to another session.
    pub(super) last_heard: Mutex<LastHeard>,
}

/// The locks of the session, and who may still use it.
#[derive(Debug, Default)]
pub(super) struct SessionLocks {
    /// The numbers of the locks that it holds or is being asked for. One lock is never asked for twice: it would be granted
    /// twice.
    pub(super) locks: HashSet<i64>,
    /// How many of them are being freed, and since when the last one is.
    pub(super) releasing: usize,
    pub(super) release_begun: Option<BootInstant>,
    /// It takes no other lock: it waits, or has a hold that is not renewed.
    pub(super) is_alone: bool,
    pub(super) is_closed: bool,
    /// A request that asks whether the session lives is under way. Callers that ask meanwhile share its answer.
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

impl SessionStatus {
    /// That of a session which was opened just now.
    pub(super) fn new(
        id: SessionId,
        mark: Option<SessionMark>,
        clock: &Clock,
        ttl: Duration,
        from: BootInstant,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            mark,
            clock: clock.clone(),
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
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionLocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes when an answer is due; `None` once it is there.
    pub(super) fn note_due(&self, at: Option<BootInstant>) {
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

    /// The failure of a request that was dropped because the session has ended.
    pub(super) fn failure(&self) -> Failure {
        let failure = Failure::ended_by(Error::outage("the session that was asked has ended"));
        Failure { by_server: self.ended_by_server.load(Ordering::Acquire), ..failure }
    }

    /// Whether each of its locks has been waiting for its release for this long.
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
    pub(super) fn takes(&self, lock: i64, alone: bool) -> bool {
        let most = if alone { 1 } else { MOST_LOCKS };
        !self.is_closed && !self.is_alone && self.locks.len() < most && !self.locks.contains(&lock)
    }
}
