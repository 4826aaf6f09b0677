//! Polls a session's task, on our thread or on that of a caller.
//!
//! The task belongs to our thread, which polls it whenever its socket has news. A caller that has a request lends its own
//! thread for one poll, so the request leaves at once: to wake our thread would take about as long as the server's answer
//! does. The caller is not needed for anything that follows.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;

use super::dialect::NamedDialect;
use super::drive::Job;

/// The requests that wait for a session's task.
pub(super) struct Jobs<D: NamedDialect>(Mutex<Queue<D>>);

struct Queue<D: NamedDialect> {
    /// `None` once the task has ended.
    waiting: Option<VecDeque<Job<D>>>,
    /// Nobody will push another one.
    is_last: bool,
}

impl<D: NamedDialect> Jobs<D> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Queue { waiting: Some(VecDeque::new()), is_last: false })))
    }

    /// The next one; `None` if there will be none. A push is followed by a poll, so this registers no waker.
    pub(super) fn next(&self) -> Poll<Option<Job<D>>> {
        let mut queue = self.queue();
        match queue.waiting.as_mut().and_then(VecDeque::pop_front) {
            Some(job) => Poll::Ready(Some(job)),
            None if queue.is_last => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// Drops those that wait and all that come later, so their callers hear that the session has ended.
    pub(super) fn end(&self) {
        let waiting = self.queue().waiting.take();
        // Outside of the lock: they wake their callers.
        drop(waiting);
    }

    fn push(&self, job: Job<D>) {
        let mut queue = self.queue();
        let refused = match &mut queue.waiting {
            Some(waiting) => {
                waiting.push_back(job);
                None
            }
            None => Some(job),
        };
        drop(queue);
        drop(refused);
    }

    fn queue(&self) -> MutexGuard<'_, Queue<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's task, which is polled on several threads, by one at a time.
pub(super) struct Driver<D: NamedDialect> {
    jobs: Arc<Jobs<D>>,
    /// `None` once it has ended.
    task: Mutex<Option<BoxFuture<'static, ()>>>,
    /// That of our thread.
    waker: Mutex<Option<Waker>>,
}

impl<D: NamedDialect> Driver<D> {
    pub(super) fn new(jobs: Arc<Jobs<D>>, task: BoxFuture<'static, ()>) -> Arc<Self> {
        Arc::new(Self { jobs, task: Mutex::new(Some(task)), waker: Mutex::default() })
    }

    /// Polls the task on our thread.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.waker() = Some(cx.waker().clone());
        poll_once(&mut self.task.lock().unwrap_or_else(PoisonError::into_inner), cx)
    }

    /// Adds a request, and lets it leave.
    pub(super) fn push(&self, job: Job<D>) {
        self.jobs.push(job);
        // If our thread has not polled the task yet, it finds the request when it does.
        let Some(waker) = self.waker().clone() else { return };
        let is_done = match self.task.try_lock() {
            // What comes later wakes our thread.
            Ok(mut task) => poll_once(&mut task, &mut Context::from_waker(&waker)).is_ready(),
            // Whoever polls it may have looked for requests already.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => true,
        };
        if is_done {
            waker.wake();
        }
    }

    /// Nobody will push another request.
    pub(super) fn close(&self) {
        self.jobs.queue().is_last = true;
        let waker = self.waker().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn poll_once(task: &mut Option<BoxFuture<'static, ()>>, cx: &mut Context<'_>) -> Poll<()> {
    let polled = task.as_mut().map_or(Poll::Ready(()), |running| running.as_mut().poll(cx));
    if polled.is_ready() {
        *task = None;
    }
    polled
}

impl<D: NamedDialect> fmt::Debug for Driver<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
