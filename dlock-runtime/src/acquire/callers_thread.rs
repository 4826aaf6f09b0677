//! The thread of a caller: which tasks stand still while the caller blocks it.
//!
//! Tokio does not tell whether a thread is a worker of a multi-thread runtime, or drives a `LocalSet` beside one. But it wakes
//! a task that yields at once, if the thread has no scheduler.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Wake, Waker};
use std::thread;

use dlock_contract::Origin;
use dlock_store::engine::{SoleThread, origin_and_sole_thread};
use tokio::task;

thread_local! {
    static WAS_WORKER: Cell<bool> = const { Cell::new(false) };
    static IS_WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// The caller's runtime, and the present thread if it is no worker of a multi-thread runtime: then no other thread goes on
/// with its tasks.
pub(crate) fn origin_and_thread() -> (Option<Origin>, Option<SoleThread>) {
    let (origin, alone) = origin_and_sole_thread();
    // A worker may become a thread of the blocking pool, so what it has begun as a worker is elsewhere by now. And each look
    // would give the worker something to do.
    let is_tied = || !WAS_WORKER.get() && !look_for_scheduler();
    (origin, alone.or_else(|| origin.filter(|_| is_tied()).map(|origin| (origin, thread::current().id()))))
}

/// The present thread, if tasks stand still while a caller blocks it.
pub(crate) fn blocked_by_a_caller() -> Option<SoleThread> {
    // Outside of every task, as in the main future of `block_on`, the tasks of a multi-thread runtime go on.
    origin_and_sole_thread().1.or_else(|| task::try_id().and_then(|_| origin_and_thread().1))
}

/// Looks whether a scheduler of tokio runs on this thread, and notes it. Then the thread is a worker, or the only thread of
/// its runtime.
pub(crate) fn look_for_scheduler() -> bool {
    static WAKER: LazyLock<Waker> = LazyLock::new(|| Arc::new(Notes).into());
    IS_WOKEN.set(false);
    let is_pending = pin!(task::yield_now()).poll(&mut Context::from_waker(&WAKER)).is_pending();
    let has_scheduler = is_pending && !IS_WOKEN.get();
    if has_scheduler {
        WAS_WORKER.set(true);
    }
    has_scheduler
}

/// Notes that the present thread has woken it.
struct Notes;

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        IS_WOKEN.set(true);
    }
}
