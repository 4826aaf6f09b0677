//! The sessions of a store: which one takes a lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::Result;
use dlock_store::background;

use super::context::NamedContext;
use super::dialect::NamedDialect;
use super::name::LockName;
use super::shared_session::{LockPlace, SharedSession};

/// The most sessions that are asked at once; further requests queue. With more, callers would wait less often for the
/// server's disk, but the server would have more connections.
const MAX_ASKED_AT_ONCE: usize = 8;
/// How many sessions without a lock are kept.
const MAX_EMPTY_SESSIONS: usize = 16;
/// The server ends a session that was opened only to look at something after this much silence.
const LOOK_SESSION_SILENCE: Duration = Duration::from_secs(60);

/// The sessions of a store.
#[derive(Debug)]
pub(super) struct SharedSessions<D: NamedDialect> {
    context: Arc<NamedContext<D>>,
    all: Mutex<Vec<Arc<SharedSession<D>>>>,
    /// One session at a time is opened to be shared. Otherwise many callers that come at once would open one each.
    opening: tokio::sync::Mutex<()>,
}

impl<D: NamedDialect> SharedSessions<D> {
    pub(super) fn new(context: &Arc<NamedContext<D>>) -> Self {
        Self { context: context.clone(), all: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// A place for a lock that is asked for without waiting, and whether its session was opened just now. Idle sessions
    /// come first. Among them the one with the most locks comes first, so that the others become empty and close.
    pub(super) async fn place(
        self: &Arc<Self>,
        ttl: Duration,
        lock: &LockName,
        alone: bool,
    ) -> Result<(LockPlace<D>, bool)> {
        if let Some(place) = self.kept(ttl, lock, alone) {
            return Ok((place, false));
        }
        if alone {
            return Ok((self.fresh(ttl, lock, alone).await?, true));
        }
        // On our thread: a caller that nobody polls must not keep the others from a session.
        let (sessions, lock) = (self.clone(), lock.clone());
        let opening = background()?.run(async move {
            let _opening = sessions.opening.lock().await;
            match sessions.kept(ttl, &lock, false) {
                Some(place) => Ok((place, false)),
                None => Ok((sessions.fresh(ttl, &lock, false).await?, true)),
            }
        });
        opening.await?
    }

    fn kept(&self, ttl: Duration, lock: &LockName, alone: bool) -> Option<LockPlace<D>> {
        let (all, now) = (self.all(), self.context.clock.now());
        let of_class = || all.iter().filter(|session| session.ttl() == ttl && !session.is_silent(now));
        let mut found: Vec<_> = of_class().filter(|session| session.takes(lock, alone)).collect();
        found.sort_by_key(|session| (session.queued(), usize::MAX - session.locks()));
        let first = found.first()?;
        let shared = of_class().filter(|session| session.is_open()).count();
        if first.queued() > 0 && (alone || shared < MAX_ASKED_AT_ONCE) {
            return None;
        }
        found.iter().find_map(|session| session.place(lock, alone))
    }

    /// A place in a session of its own, for a wait: an empty one, or a new one.
    pub(super) async fn place_to_wait(&self, ttl: Duration, lock: &LockName) -> Result<LockPlace<D>> {
        match self.kept(ttl, lock, true) {
            Some(place) => Ok(place),
            None => self.fresh(ttl, lock, true).await,
        }
    }

    /// A place in a new session.
    pub(super) async fn fresh(&self, ttl: Duration, lock: &LockName, alone: bool) -> Result<LockPlace<D>> {
        loop {
            let session = SharedSession::open(&self.context, ttl).await?;
            // No other caller has the session yet. So this takes a second round only if the session has ended at once.
            let place = session.place(lock, alone);
            self.keep(session);
            if let Some(place) = place {
                return Ok(place);
            }
        }
    }

    /// A session to look at something. It may hold locks.
    pub(super) async fn any(&self) -> Result<Arc<SharedSession<D>>> {
        let idle = self.all().iter().find(|session| session.is_open() && session.queued() == 0).cloned();
        match idle {
            Some(session) => Ok(session),
            None => self.looking().await,
        }
    }

    /// A new session to look at something.
    pub(super) async fn looking(&self) -> Result<Arc<SharedSession<D>>> {
        let session = SharedSession::open(&self.context, LOOK_SESSION_SILENCE).await?;
        self.keep(session.clone());
        Ok(session)
    }

    fn keep(&self, session: Arc<SharedSession<D>>) {
        let mut all = self.all();
        if self.context.closed.is_set() {
            return;
        }
        let mut empty = 0;
        // Sessions with holds live on with their holds. An empty session that is not kept is closed.
        all.retain(|session| {
            empty += usize::from(session.locks() == 0);
            session.is_usable() && (session.locks() > 0 || empty < MAX_EMPTY_SESSIONS)
        });
        all.push(session);
    }

    /// Forgets all sessions, and opens none any more. Those without a lock close.
    pub(super) fn close(&self) {
        self.context.closed.set();
        let all = std::mem::take(&mut *self.all());
        // Dropped outside of the mutex.
        drop(all);
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<SharedSession<D>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
