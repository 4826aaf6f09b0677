//! The sessions of one runtime for wait queues. They are not in the pool: a session in a queue belongs to one waiter or
//! hold, and a pool whose connections all waited could serve nobody.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Result};
use dlock_store::CallerRuntime;

use crate::connection::answer::{answered, answered_after};
use crate::connection::session::{StatementSession, StoreContext};
use crate::dialect::{Dialect, WaitQueues};
use crate::lease::queue::leaving::Leaving;
use crate::tables::queue_name::QueueName;

/// After a failure in a wait queue, no waiter of the runtime joins a queue for this long. Otherwise each poll would
/// open a connection that the server refuses.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The sessions of one runtime for wait queues.
pub(crate) struct QueueSessions<D: Dialect> {
    pub(crate) context: Arc<StoreContext<D>>,
    pub(crate) runtime: CallerRuntime,
    max: usize,
    /// The number of sessions, idle ones included.
    open: Arc<AtomicUsize>,
    state: Mutex<QueueSessionsState<D>>,
    pub(crate) leaving: Arc<Leaving>,
}

struct QueueSessionsState<D: Dialect> {
    idle: Vec<QueueSession<D>>,
    /// Whether a task closes sessions that are idle for too long.
    is_watched: bool,
    paused_until: BootInstant,
    /// The store was closed: sessions that leave their queues now are closed too.
    is_over: bool,
}

/// A session that is in a wait queue, or may join one.
pub(crate) struct QueueSession<D: Dialect> {
    pub(crate) session: StatementSession<D>,
    scope: String,
    idle_since: BootInstant,
    _permit: Permit,
}

/// The right to use one session.
pub(crate) enum Reserved<D: Dialect> {
    /// An idle session.
    Used(Box<QueueSession<D>>),
    /// A session that must be opened.
    New(Permit),
}

/// Why a waiter must poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// The runtime has its most sessions already.
    Full,
    /// A wait queue failed a moment ago.
    Paused,
}

/// Counts one session.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<D: Dialect> QueueSessions<D> {
    /// The sessions of the present runtime.
    pub(crate) fn here(context: &Arc<StoreContext<D>>) -> Result<Self> {
        let state = QueueSessionsState {
            idle: Vec::new(),
            is_watched: false,
            paused_until: BootInstant::from_nanos(0),
            is_over: false,
        };
        let max = context.settings.max_connections;
        Ok(Self {
            context: context.clone(),
            runtime: CallerRuntime::here()?,
            max,
            open: Arc::default(),
            state: Mutex::new(state),
            leaving: Arc::default(),
        })
    }

    /// Reserves a session.
    pub(crate) fn reserve(&self) -> Result<Reserved<D>, NoSession> {
        let mut state = self.lock();
        if state.paused_until > self.context.clock.now() {
            return Err(NoSession::Paused);
        }
        if let Some(idle) = state.idle.pop() {
            return Ok(Reserved::Used(Box::new(idle)));
        }
        let more = |open: usize| (open < self.max).then_some(open + 1);
        match self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Reserved::New(Permit(self.open.clone()))),
            Err(_) => Err(NoSession::Full),
        }
    }

    /// A session that is ready to join a queue.
    pub(crate) async fn open_session(&self, session: Reserved<D>) -> Result<QueueSession<D>> {
        let permit = match session {
            Reserved::New(permit) => permit,
            Reserved::Used(mut used) => {
                if used.session.check_usable().await {
                    return Ok(*used);
                }
                let QueueSession { session, _permit, .. } = *used;
                session.close().await;
                _permit
            }
        };
        let mut session = StatementSession::open(&self.context).await?;
        session.is_bound = true;
        let scope = session.request(|dialect, conn| match dialect.wait_queues() {
            Some(queues) => queues.set_up(conn),
            None => Box::pin(async { Ok(String::new()) }),
        });
        let scope = answered(&self.context.clock, scope).await?;
        Ok(QueueSession { session, scope, idle_since: self.context.clock.now(), _permit: permit })
    }

    /// Keeps a session that has left its queue.
    pub(crate) fn put_back(self: &Arc<Self>, mut session: QueueSession<D>) {
        if session.session.broken {
            return;
        }
        session.idle_since = self.context.clock.now();
        let mut state = self.lock();
        if state.is_over {
            drop(state);
            self.runtime.spawn(session.session.close());
            return;
        }
        state.idle.push(session);
        if std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        drop(state);
        self.runtime.spawn(self.clone().close_idle());
    }

    /// Closes sessions that were idle for too long, until none is left.
    async fn close_idle(self: Arc<Self>) {
        let (clock, most) = (&self.context.clock, self.context.settings.idle_timeout);
        loop {
            let now = clock.now();
            let (old, next) = {
                let mut state = self.lock();
                let old: Vec<_> = state.idle.extract_if(.., |idle| now.since(idle.idle_since) >= most).collect();
                let next = state.idle.iter().map(|idle| idle.idle_since.after(most)).min();
                state.is_watched = next.is_some();
                (old, next)
            };
            for idle in old {
                idle.session.close().await;
            }
            let Some(next) = next else { return };
            clock.sleep_until(next).await;
        }
    }

    /// Lets no waiter join a queue for a while.
    pub(crate) fn pause(&self) {
        self.lock().paused_until = self.context.clock.now().after(AFTER_FAILURE);
    }

    /// Closes the idle sessions.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for idle in idle {
            self.runtime.spawn(async move { idle.session.close().await });
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueSessionsState<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dialect> QueueSession<D> {
    /// The name of a row's wait queue.
    pub(crate) fn queue_name(&self, row: &str) -> QueueName {
        QueueName::of(&self.scope, row)
    }

    /// Takes the turn if the queue is empty. False if it is not.
    pub(crate) async fn try_turn(&mut self, queue: &QueueName) -> Result<bool> {
        let context = self.session.context.clone();
        answered(&context.clock, self.take_turn(queue, Duration::ZERO)).await
    }

    /// Joins a queue and waits for its turn until this instant. False if the turn has not come by then.
    pub(crate) async fn wait_for_turn(&mut self, queue: &QueueName, until: BootInstant) -> Result<bool> {
        let context = self.session.context.clone();
        let longest = context.dialect.wait_queues().map_or(Duration::ZERO, WaitQueues::longest_wait);
        loop {
            let wait = until.since(context.clock.now()).min(longest);
            if answered_after(&context.clock, wait, self.take_turn(queue, wait)).await? {
                return Ok(true);
            }
            if context.clock.now() >= until {
                return Ok(false);
            }
        }
    }

    async fn take_turn(&mut self, queue: &QueueName, wait: Duration) -> Result<bool> {
        let queue = queue.clone();
        let request = self.session.request(move |dialect, conn| {
            Box::pin(async move {
                match dialect.wait_queues() {
                    Some(queues) => queues.take_turn(conn, &queue, wait).await,
                    None => Ok(false),
                }
            })
        });
        request.await
    }

    /// Leaves a queue. If that fails, the session must be dropped, which also ends its turn.
    pub(crate) async fn leave(&mut self, queue: &QueueName) -> Result<()> {
        let (context, queue) = (self.session.context.clone(), queue.clone());
        let leave = self.session.request(move |dialect, conn| {
            Box::pin(async move {
                match dialect.wait_queues() {
                    Some(queues) => queues.leave(conn, &queue).await,
                    None => Ok(false),
                }
            })
        });
        if answered(&context.clock, leave).await? {
            return Ok(());
        }
        self.session.broken = true;
        Err(Error::outage("the session did not have the turn in the wait queue"))
    }
}
