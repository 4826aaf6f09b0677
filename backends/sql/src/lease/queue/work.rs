//! Work in a task of a runtime that can be dropped from outside, with all that it owns.
//!
//! A session in a wait queue belongs to the work that uses it. If its runtime is blocked, aborting the task would close
//! the session only when the runtime goes on, and no other waiter would get the turn until then.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use dlock_store::CallerRuntime;
use futures::future::BoxFuture;

/// The work of one task; `None` once it is done or dropped.
#[derive(Default)]
pub(crate) struct Work(Mutex<Option<BoxFuture<'static, ()>>>);

impl Work {
    /// Begins it in a task of that runtime.
    pub(crate) fn begin(self: &Arc<Self>, runtime: &CallerRuntime, work: impl Future<Output = ()> + Send + 'static) {
        *self.lock() = Some(Box::pin(work));
        let task = QueueTask(self.clone());
        runtime.spawn(async move {
            let task = task;
            poll_fn(|cx| task.0.poll(cx)).await;
        });
    }

    /// Drops it, unless it is polled just now.
    pub(crate) fn stop(&self) {
        if let Ok(mut slot) = self.0.try_lock() {
            let work = slot.take();
            drop(slot);
            drop(work);
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.lock();
        let Some(work) = slot.as_mut() else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            *slot = None;
        }
        polled
    }

    fn lock(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task. With it ends its work, as when the runtime ends.
struct QueueTask(Arc<Work>);

impl Drop for QueueTask {
    fn drop(&mut self) {
        let work = self.0.lock().take();
        drop(work);
    }
}
