//! The connections of one runtime. Each is driven by a task of its own.
//!
//! A job runs in that task to its end, whether its caller is polled or not. If a caller kept the connection in its own
//! future, then one that is not polled would keep the connection from all others.
//!
//! The connection that was used last is used next, so that those which the load does not need become idle and close.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::CallerRuntime;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::connection::answer::{ANSWER_LIMIT, unanswered};
use crate::connection::hosts::not_ready;
use crate::connection::misread::unless_misread;
use crate::connection::session::{StatementSession, StoreContext};
use crate::dialect::Dialect;

/// How long a job waits for a connection.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(4);

/// The connections of one runtime.
pub(crate) struct Pool<D: Dialect> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: Dialect> {
    context: Arc<StoreContext<D>>,
    place: CallerRuntime,
    max: usize,
    state: Mutex<PoolState<D>>,
    /// How many tasks are about to connect.
    connecting: Arc<AtomicUsize>,
}

struct PoolState<D: Dialect> {
    /// Jobs that no task has begun.
    waiting: VecDeque<Arc<Queued<D>>>,
    /// Tasks that have nothing to do; the last one became idle last.
    idle: Vec<oneshot::Sender<()>>,
    /// How many tasks there are.
    tasks: usize,
}

type PoolJob<D> = Box<dyn for<'a> FnOnce(Result<&'a mut StatementSession<D>>) -> BoxFuture<'a, ()> + Send>;

/// A job, until a task or the going of its caller takes it.
type Queued<D> = Mutex<Option<PoolJob<D>>>;

impl<D: Dialect> Pool<D> {
    /// A pool for the present runtime.
    pub(crate) fn here(context: &Arc<StoreContext<D>>, max: usize) -> Result<Self> {
        let state = Mutex::new(PoolState { waiting: VecDeque::new(), idle: Vec::new(), tasks: 0 });
        let (context, place, connecting) = (context.clone(), CallerRuntime::here()?, Arc::default());
        Ok(Self { inner: Arc::new(Inner { context, place, max, state, connecting }) })
    }

    /// Runs a job on one of the connections, and opens one first if all are busy.
    pub(crate) async fn run<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut StatementSession<D>) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.inner.context.closed.refuse()?;
        let (sender, receiver) = oneshot::channel();
        let clock = self.inner.context.clock.clone();
        let job: PoolJob<D> = Box::new(move |session| {
            Box::pin(async move {
                if sender.is_closed() {
                    return;
                }
                let answer = match session {
                    Err(error) => Err(error.never_sent()),
                    Ok(session) => {
                        let work = unless_misread(request(&mut *session));
                        let done = clock.timeout_at(clock.now().after(ANSWER_LIMIT), work).await;
                        session.broken |= done.is_none();
                        done.unwrap_or_else(|| Err(unanswered()))
                    }
                };
                // The caller may be gone meanwhile.
                let _ = sender.send(answer);
            })
        });
        let queued = Arc::new(Mutex::new(Some(job)));
        let place = Arc::downgrade(&queued);
        let _gone = Gone(place.clone());
        self.inner.give(queued);
        let (mut receiver, clock) = (receiver, &self.inner.context.clock);
        let answer = match clock.timeout_at(clock.now().after(QUEUE_TIMEOUT), &mut receiver).await {
            Some(answer) => answer,
            // Nothing has begun: the caller hears why, and not only that it was too late.
            None if take(&place).is_some() => return Err(self.exhausted()),
            None => receiver.await,
        };
        answer.unwrap_or_else(|_| Err(Error::outage("the runtime that drives the connection is shutting down")))
    }

    fn exhausted(&self) -> Error {
        let max = self.inner.max;
        let (connecting, tasks) = (self.inner.connecting.load(Ordering::Relaxed), self.inner.lock().tasks);
        // A task that connects serves nobody. If all do, more of them would not help.
        if tasks > 0 && connecting >= tasks {
            return Error::outage(not_ready(QUEUE_TIMEOUT)).never_sent();
        }
        let text = format!(
            "all {max} connections of this runtime to the server are busy: raise max_connections, or look for what makes \
             the server slow"
        );
        Error::outage(text).with_code("pool_exhausted").never_sent()
    }

    /// Ends the idle connections, and takes no job any more. The other connections end with their jobs.
    pub(crate) fn close(&self) {
        self.inner.context.closed.set();
        let idle = std::mem::take(&mut self.inner.lock().idle);
        // Outside of the lock.
        drop(idle);
    }
}

impl<D: Dialect> Inner<D> {
    fn lock(&self) -> MutexGuard<'_, PoolState<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, and wakes an idle task, or starts one if there may be more.
    fn give(self: &Arc<Self>, job: Arc<Queued<D>>) {
        let mut state = self.lock();
        while state.waiting.front().is_some_and(|job| is_empty(job)) {
            state.waiting.pop_front();
        }
        state.waiting.push_back(job);
        while let Some(idle) = state.idle.pop() {
            // An error means that this idle task is ending just now: the next one is tried.
            if idle.send(()).is_ok() {
                return;
            }
        }
        if state.tasks >= self.max {
            return;
        }
        state.tasks += 1;
        drop(state);
        let task = ConnectionTask { pool: Arc::downgrade(self), context: self.context.clone(), is_counted: true };
        self.place.spawn(task.work());
    }
}

/// The task that drives one connection.
struct ConnectionTask<D: Dialect> {
    pool: Weak<Inner<D>>,
    context: Arc<StoreContext<D>>,
    /// Whether the pool still counts on it.
    is_counted: bool,
}

impl<D: Dialect> ConnectionTask<D> {
    /// Connects before it takes a job. So a job goes over whichever connection is free first, and a server that refuses one
    /// more connection stops nobody who can use another.
    async fn work(mut self) {
        let mut session: Option<StatementSession<D>> = None;
        while self.wait_for_job(session.as_ref().is_some_and(|session| !session.broken)).await {
            match self.usable(session.take()).await {
                Ok(open) => {
                    let open = session.insert(open);
                    if let Some(job) = self.take_job() {
                        job(Ok(open)).await;
                    }
                }
                Err(error) => {
                    if self.leave_if_superfluous() {
                        return;
                    }
                    while let Some(job) = self.take_job() {
                        job(Err(error.again())).await;
                    }
                }
            }
        }
        if let Some(session) = session {
            session.close().await;
        }
    }

    async fn usable(&self, session: Option<StatementSession<D>>) -> Result<StatementSession<D>> {
        if let Some(mut open) = session {
            if open.check_usable().await {
                return Ok(open);
            }
            open.close().await;
        }
        let _connecting = self.pool.upgrade().map(|pool| Connecting::begin(&pool.connecting));
        StatementSession::open(&self.context).await
    }

    fn take_job(&self) -> Option<PoolJob<D>> {
        let pool = self.pool.upgrade()?;
        loop {
            let queued = pool.lock().waiting.pop_front()?;
            if let Some(job) = take(&Arc::downgrade(&queued)) {
                return Some(job);
            }
        }
    }

    /// Ends the count of a task that cannot connect, if others can do its work. The last one gives its error to the
    /// callers.
    fn leave_if_superfluous(&mut self) -> bool {
        let Some(pool) = self.pool.upgrade() else { return true };
        let mut state = pool.lock();
        if state.tasks < 2 {
            return false;
        }
        // The job for which this task was woken is for one of those that are connected.
        while state.idle.pop().is_some_and(|idle| idle.send(()).is_err()) {}
        !self.leave(&mut state)
    }

    /// Waits until there is a job. False if this task is not needed any more, as one without a connection whose job another
    /// task has taken.
    async fn wait_for_job(&mut self, is_connected: bool) -> bool {
        let (wake, mut woken) = oneshot::channel();
        {
            let Some(pool) = self.pool.upgrade() else { return false };
            let mut state = pool.lock();
            if !state.waiting.is_empty() {
                return true;
            }
            if !is_connected || self.context.closed.is_set() {
                return self.leave(&mut state);
            }
            state.idle.push(wake);
        }
        let clock = &self.context.clock;
        let until = clock.now().after(self.context.settings.idle_timeout);
        if let Some(Ok(())) = clock.timeout_at(until, &mut woken).await {
            return true;
        }
        woken.close();
        let Some(pool) = self.pool.upgrade() else { return false };
        let mut state = pool.lock();
        state.idle.retain(|idle| !idle.is_closed());
        !state.waiting.is_empty() || self.leave(&mut state)
    }

    /// In one step with a look at the jobs: a later job starts a new task.
    fn leave(&mut self, state: &mut PoolState<D>) -> bool {
        state.tasks -= 1;
        self.is_counted = false;
        false
    }
}

impl<D: Dialect> Drop for ConnectionTask<D> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade().filter(|_| self.is_counted) {
            pool.lock().tasks -= 1;
        }
    }
}

/// Counts a task that connects, until it has connected or ends.
struct Connecting(Arc<AtomicUsize>);

impl Connecting {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a job out of the queue when its caller goes away. Otherwise useless jobs would pile up behind a server that is
/// silent.
struct Gone<D: Dialect>(Weak<Queued<D>>);

impl<D: Dialect> Drop for Gone<D> {
    fn drop(&mut self) {
        drop(take(&self.0));
    }
}

fn take<D: Dialect>(queued: &Weak<Queued<D>>) -> Option<PoolJob<D>> {
    queued.upgrade()?.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn is_empty<D: Dialect>(queued: &Queued<D>) -> bool {
    queued.lock().unwrap_or_else(PoisonError::into_inner).is_none()
}

impl<D: Dialect> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("max", &self.inner.max).finish_non_exhaustive()
    }
}
