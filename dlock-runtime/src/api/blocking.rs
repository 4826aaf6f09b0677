//! Locked calls that are not async: the caller's thread sleeps while our thread does the asynchronous work.
//!
//! Parking works everywhere: on a worker of any runtime, in a `LocalSet`, and without a runtime, where tokio's own ways
//! to block panic. A worker of a multi-thread runtime parks in `block_in_place`, so its other tasks go on elsewhere. If
//! parking would stop the thread that must release, the call fails with `WouldDeadlock` at once. This is so on our own
//! thread, and on the thread of a current-thread runtime or of a `LocalSet`, if the holder or an earlier waiter has begun on
//! it. A neighbour in a `LocalSet` that a worker polls cannot be seen, nor one beside the main future of `block_on`; the call
//! then waits until its wait ends.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{background, is_ours};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task;

use crate::acquire::callers_thread::look_for_scheduler;
use crate::acquire::request::{Request, blocks_our_thread};
use crate::acquire::several::acquire_all;
use crate::api::key_of;
use crate::api::outcome::Ran;
use crate::events::observe::DeferredEvents;
use crate::events::spans::LockSpan;
use crate::guard::guard_set::{Guards, finish_all};
use crate::guard::scope;
use crate::site::{Call, Keys, Site};

/// Acquires the site's locks, runs `body` on this thread, releases.
#[doc(hidden)]
pub fn run_sync<T>(site: &'static Site, call: Call, judge: Option<fn(&T) -> bool>, body: impl FnOnce() -> T) -> Ran<T> {
    match begin_sync(site, call) {
        Ok(guards) => hold_sync(guards, judge, body),
        Err(error) => Ran::Failed(error),
    }
}

/// The first half of [`run_sync`], for a function that does something else when it cannot have its locks.
#[doc(hidden)]
pub fn begin_sync(site: &'static Site, call: Call) -> Result<Guards> {
    if let Some(stop) = key_of::note_key(site, &call.keys) {
        return Err(stop);
    }
    acquire_sync(Request::of_site(site, &call).parking(), call.keys)
}

pub(crate) fn acquire_sync(request: Request, keys: Keys) -> Result<Guards> {
    let span = LockSpan::wait(|| Some(request.label(&keys)));
    let mut acquired = wait_for(scope::inherit(acquire_all(request, keys))).and_then(|acquired| acquired);
    span.waited(&acquired);
    acquired.iter_mut().for_each(Guards::begin_spans);
    acquired
}

/// The second half of [`run_sync`]. A body that runs on after a loss cannot be stopped. It can ask, and the caller
/// hears of the loss in any case.
#[doc(hidden)]
pub fn hold_sync<T>(guards: Guards, judge: Option<fn(&T) -> bool>, body: impl FnOnce() -> T) -> Ran<T> {
    let output = match guards.begin(body) {
        Ok(output) => output,
        Err(loss) => return Ran::Lost(loss, None),
    };
    if let Err(loss) = guards.check() {
        return Ran::Lost(loss, Some(output));
    }
    let run = judge.map(|judge| judge(&output));
    guards.note_run(run);
    match release_sync(guards) {
        Ok(()) => Ran::Done(output),
        Err(loss) => Ran::Lost(loss, Some(output)),
    }
}

pub(crate) fn release_sync(guards: Guards) -> Result<()> {
    wait_for(finish_all(guards))?
}

/// Runs `future` on our thread while this one sleeps. Observers hear of it from this one, when it wakes.
fn wait_for<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T> {
    if is_ours() {
        return Err(blocks_our_thread());
    }
    let deferred = DeferredEvents::default();
    let work = deferred.during(future);
    let (sender, receiver) = channel();
    // Dropped when this thread waits no more; this cancels the work.
    let _work = background()?.run(async move {
        let _ = sender.send(work.await);
    });
    let answer = sleep(&receiver);
    deferred.tell();
    answer
}

/// The time that a worker sleeps before its other tasks go on elsewhere. Most answers come sooner than the tasks could
/// move.
const SHORT_SLEEP: Duration = Duration::from_millis(2);

fn sleep<T>(receiver: &Receiver<T>) -> Result<T> {
    let answer = match receiver.recv_timeout(SHORT_SLEEP) {
        Err(RecvTimeoutError::Timeout) => sleep_off_worker(|| receiver.recv()).ok(),
        answer => answer.ok(),
    };
    answer.ok_or_else(failed)
}

/// Sleeps while the other tasks of this worker go on elsewhere.
fn sleep_off_worker<T>(sleep: impl Fn() -> T) -> T {
    let is_multi_thread =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread);
    if !is_multi_thread || !look_for_scheduler() {
        return sleep();
    }
    let mut slept = None;
    // Tokio panics if the scheduler is that of another runtime, which a guard of `Handle::enter` hides.
    let _ = catch_unwind(AssertUnwindSafe(|| task::block_in_place(|| slept = Some(sleep()))));
    slept.unwrap_or_else(sleep)
}

fn failed() -> Error {
    Error::new(ErrorKind::Internal, "a task on dlock's own thread failed")
}
