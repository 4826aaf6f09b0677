//! Polls a session's task, on our thread or on that of a caller.
//!
//! The task belongs to our thread, which polls it whenever its socket has news. A caller that has a request lends its own
//! thread for one poll, so the request leaves at once: to wake our thread would take about as long as the server's answer
//! does. The caller is not needed for anything that follows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;

/// The requests that wait for a session's task.
pub(super) struct Jobs<J>(Mutex<Queue<J>>);

struct Queue<J> {
    /// `None` once the task has ended.
    waiting: Option<VecDeque<J>>,
    /// Whether no more requests will be pushed.
    is_last: bool,
}

impl<J> Jobs<J> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Queue { waiting: Some(VecDeque::new()), is_last: false })))
    }

    /// The next request; `None` if there will be no more. A push is followed by a poll, so this registers no waker.
    pub(super) fn next(&self) -> Poll<Option<J>> {
        let mut queue = self.queue();
        match queue.waiting.as_mut().and_then(VecDeque::pop_front) {
            Some(job) => Poll::Ready(Some(job)),
            None if queue.is_last => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// Drops the requests that wait and all later ones, so their callers hear that the session has ended.
    pub(super) fn end(&self) {
        let waiting = self.queue().waiting.take();
        // Dropped outside of the lock, because the requests wake their callers.
        drop(waiting);
    }

    fn push(&self, job: J) {
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

    fn queue(&self) -> MutexGuard<'_, Queue<J>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's task, which is polled on several threads, by one at a time.
pub(super) struct Driver<J> {
    jobs: Arc<Jobs<J>>,
    /// `None` once the task has ended.
    task: Mutex<Option<BoxFuture<'static, ()>>>,
    /// The waker of our thread.
    waker: Mutex<Option<Waker>>,
}

impl<J> Driver<J> {
    pub(super) fn new(jobs: Arc<Jobs<J>>, task: BoxFuture<'static, ()>) -> Arc<Self> {
        Arc::new(Self { jobs, task: Mutex::new(Some(task)), waker: Mutex::default() })
    }

    /// Polls the task on our thread.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.waker() = Some(cx.waker().clone());
        poll_once(&mut self.task.lock().unwrap_or_else(PoisonError::into_inner), cx)
    }

    /// Adds a request, and lets it leave.
    pub(super) fn push(&self, job: J) {
        self.jobs.push(job);
        // If our thread has not polled the task yet, it finds the request when it does.
        let Some(waker) = self.waker().clone() else { return };
        let is_done = match self.task.try_lock() {
            // A request that comes later wakes our thread.
            Ok(mut task) => poll_once(&mut task, &mut Context::from_waker(&waker)).is_ready(),
            // Another thread polls the task, and may have looked for requests already.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => true,
        };
        if is_done {
            waker.wake();
        }
    }

    /// Notes that no more requests will be pushed.
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A task that does one job at each poll, and calls `during` with it.
    fn driver(during: impl Fn(usize) + Send + 'static) -> Arc<Driver<usize>> {
        let jobs = Jobs::new();
        let own = jobs.clone();
        let task = poll_fn(move |_| match own.next() {
            Poll::Ready(Some(job)) => {
                during(job);
                Poll::Pending
            }
            Poll::Ready(None) => {
                own.end();
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        });
        Driver::new(jobs, Box::pin(task))
    }

    #[test]
    fn a_push_polls_the_task_and_leaves_the_rest_to_our_thread() {
        let (done, wakes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Wakes::default()));
        let (waker, log) = (Waker::from(wakes.clone()), done.clone());
        let again = Arc::new(Mutex::new(None::<Arc<Driver<usize>>>));
        let inside = again.clone();
        let driver = driver(move |job| {
            log.lock().unwrap().push(job);
            if job == 2 {
                // Like the release of a grant whose caller has gone.
                inside.lock().unwrap().as_ref().unwrap().push(3);
            }
        });
        *again.lock().unwrap() = Some(driver.clone());
        let poll = || driver.poll(&mut Context::from_waker(&waker));
        let (jobs, count) = (|| done.lock().unwrap().clone(), || wakes.0.load(Ordering::SeqCst));

        driver.push(1);
        assert!(jobs().is_empty(), "our thread had no chance to tell its waker");
        assert!(poll().is_pending());
        assert_eq!((jobs(), count()), (vec![1], 0));
        driver.push(2);
        assert_eq!((jobs(), count()), (vec![1, 2], 1), "a request that came during the poll would wait for ever");
        assert!(poll().is_pending());
        assert_eq!(jobs(), [1, 2, 3]);
        driver.close();
        assert_eq!(count(), 2, "the task would never hear of its end");
        assert!(poll().is_ready());
        driver.push(4);
        assert_eq!(driver.jobs.next(), Poll::Ready(None), "a request after the end was kept");
        *again.lock().unwrap() = None;
    }
}
