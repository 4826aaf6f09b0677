//! The end of a registry: the signal that nothing new begins, and the count of the work that is still under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::Clock;
use tokio::sync::Notify;

/// The error of calls after a shutdown.
pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::ShutDown, "dlock was shut down")
}

/// The acquisitions, releases and abandons that are under way.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    running: AtomicUsize,
    given_up: AtomicBool,
}

/// One job; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Job(Arc<Jobs>);

/// One job in a caller's frame. It borrows, because every call has one and a reference count would cost something.
#[derive(Debug)]
pub(crate) struct BorrowedJob<'a>(&'a Jobs);

impl Jobs {
    pub(crate) fn begin(self: &Arc<Self>) -> Job {
        self.enter();
        Job(self.clone())
    }

    pub(crate) fn call(&self) -> BorrowedJob<'_> {
        self.enter();
        BorrowedJob(self)
    }

    pub(crate) fn enter(&self) {
        // Sequentially consistent with `ShutdownSignal`: the shutdown sees this job, or the job sees the shutdown.
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn none(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn give_up(&self) -> usize {
        self.given_up.store(true, Ordering::Release);
        self.running.load(Ordering::Acquire)
    }
}

impl Job {
    /// Whether the shutdown has ended, so that further tries are of no use.
    pub(crate) fn given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for BorrowedJob<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Tells all waiters that the registry is shutting down.
#[derive(Debug, Default)]
pub(crate) struct ShutdownSignal {
    closed: AtomicBool,
    news: Notify,
}

impl ShutdownSignal {
    /// Wakes every sleep on the registry's clock, also those of other registries; each looks again.
    pub(crate) fn close(&self, clock: &Clock) {
        self.closed.store(true, Ordering::SeqCst);
        self.news.notify_waiters();
        clock.wake_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Fails once the registry is closed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_closed() { Err(shut_down()) } else { Ok(()) }
    }

    /// Gives the future's output, or the error of a shutdown if the registry closes first.
    pub(crate) fn or<F: Future>(&self, future: F) -> Or<'_, F> {
        // From here on it hears of a shutdown, also before it is polled.
        Or { shutdown: self, news: Some(self.news.notified()), future }
    }

    /// For a future that sleeps on the registry's clock whenever it is pending, as every request with a bound does. It
    /// does not join the list of waiters for news, which all calls would share.
    pub(crate) const fn or_bounded<F: Future>(&self, future: F) -> Or<'_, F> {
        Or { shutdown: self, news: None, future }
    }
}

pin_project_lite::pin_project! {
    /// See [`ShutdownSignal::or`]. By hand, since an `async fn` would keep the future twice.
    pub(crate) struct Or<'a, F> {
        shutdown: &'a ShutdownSignal,
        #[pin]
        news: Option<tokio::sync::futures::Notified<'a>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Or<'_, F> {
    type Output = Result<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<F::Output>> {
        let this = self.project();
        if this.shutdown.is_closed() {
            return Poll::Ready(Err(shut_down()));
        }
        match (this.future.poll(cx), this.news.as_pin_mut()) {
            (Poll::Ready(output), _) => Poll::Ready(Ok(output)),
            (Poll::Pending, Some(news)) => news.poll(cx).map(|()| Err(shut_down())),
            // Checked again now that it sleeps: a shutdown in between has not found it.
            (Poll::Pending, None) if this.shutdown.is_closed() => Poll::Ready(Err(shut_down())),
            (Poll::Pending, None) => Poll::Pending,
        }
    }
}
