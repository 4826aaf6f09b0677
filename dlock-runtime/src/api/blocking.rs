//! Locked calls that are not async: the caller's thread sleeps while our thread does the asynchronous work.
//!
//! Parking works everywhere: on a worker of any runtime, in a `LocalSet`, and without a runtime, where tokio's own ways
//! to block panic. A worker of a multi-thread runtime parks in `block_in_place`, so its other tasks go on elsewhere. If
//! parking would stop the thread that must release, the call fails with `WouldDeadlock` at once. This is so on a
//! current-thread runtime if the holder or an earlier waiter lives on it, on our own thread, and for a task of a
//! `LocalSet` that a multi-thread runtime drives. A neighbour in the `LocalSet` of a worker cannot be seen; the call
//! then waits until its wait ends.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{background, is_ours};
use dlock_contract::{Error, ErrorKind, Result};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task;

use crate::acquire::request::{Request, blocks_our_thread};
use crate::acquire::several::acquire_all;
use crate::api::key_of;
use crate::api::outcome::Ran;
use crate::events::observe::DeferredEvents;
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

pub(crate) fn acquire_sync(mut request: Request, keys: Keys) -> Result<Guards> {
    let (sender, receiver) = channel();
    if let Some(parked) = &mut request.parked {
        let sender = Mutex::new(sender.clone());
        parked.waits = Some(Arc::new(move || {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody listens any more only if the caller's thread is gone.
            let _ = sender.send(News::Waits);
        }));
    }
    wait_for(scope::inherit(acquire_all(request, keys)), sender, &receiver)?
}

/// The second half of [`run_sync`]. A body that runs on after a loss cannot be stopped. It can ask, and the caller
/// hears of the loss in any case.
#[doc(hidden)]
pub fn hold_sync<T>(guards: Guards, judge: Option<fn(&T) -> bool>, body: impl FnOnce() -> T) -> Ran<T> {
    if let Err(loss) = guards.check() {
        return Ran::Lost(loss, None);
    }
    let output = guards.inside(body);
    if let Err(loss) = guards.check() {
        return Ran::Lost(loss, Some(output));
    }
    let run = judge.map(|judge| judge(&output));
    guards.ran(run);
    match release_sync(guards) {
        Ok(()) => Ran::Done(output),
        Err(loss) => Ran::Lost(loss, Some(output)),
    }
}

pub(crate) fn release_sync(guards: Guards) -> Result<()> {
    let (sender, receiver) = channel();
    wait_for(finish_all(guards), sender, &receiver)?
}

/// The news for a thread that sleeps while our thread works for it.
enum News<T> {
    /// Others hold the lock: it may take long.
    Waits,
    Ended(T),
}

/// Runs `future` on our thread while this one sleeps. Observers hear of it from this one, when it wakes.
fn wait_for<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
    sender: Sender<News<T>>,
    receiver: &Receiver<News<T>>,
) -> Result<T> {
    if is_ours() {
        return Err(blocks_our_thread());
    }
    let deferred = DeferredEvents::default();
    let work = deferred.during(future);
    // Dropped when this thread waits no more; this cancels the work.
    let _work = background()?.run(async move {
        let _ = sender.send(News::Ended(work.await));
    });
    let answer = sleep(receiver);
    deferred.tell();
    answer
}

/// The time that a worker sleeps before its other tasks go on elsewhere. Most answers come sooner than the tasks could
/// move.
const SHORT_SLEEP: Duration = Duration::from_millis(2);

fn sleep<T>(receiver: &Receiver<News<T>>) -> Result<T> {
    let mut waits = match receiver.recv_timeout(SHORT_SLEEP) {
        Ok(News::Ended(answer)) => return Ok(answer),
        Ok(News::Waits) => true,
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => return Err(failed()),
    };
    if let Some(answer) = sleep_off_worker(|| receiver.iter().find_map(ended)) {
        return answer.ok_or_else(failed);
    }
    // No other thread can go on with this thread's tasks. Wait for the store's answer, but not for a neighbour's
    // release.
    loop {
        if waits {
            let text = "this thread drives a `LocalSet` whose tasks stand still while we block it, and the lock may be \
                        held by one of them; make the function async, or call it in `spawn_blocking`";
            return Err(Error::new(ErrorKind::WouldDeadlock, text));
        }
        match receiver.recv() {
            Ok(News::Ended(answer)) => return Ok(answer),
            Ok(News::Waits) => waits = true,
            Err(_) => return Err(failed()),
        }
    }
}

fn ended<T>(news: News<T>) -> Option<T> {
    match news {
        News::Waits => None,
        News::Ended(answer) => Some(answer),
    }
}

/// Sleeps while the other tasks of this worker go on elsewhere. `None` if they cannot; then it has not slept.
fn sleep_off_worker<T>(sleep: impl FnOnce() -> T) -> Option<T> {
    let is_multi_thread =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread);
    // Outside of every task no worker is blocked.
    if !is_multi_thread || task::try_id().is_none() {
        return Some(sleep());
    }
    // The main thread is no worker, so a task on it belongs to a `LocalSet`. For other threads, only a panic of tokio
    // shows it.
    if std::thread::current().name() == Some("main") {
        return None;
    }
    let mut slept = None;
    let _ = catch_unwind(AssertUnwindSafe(|| task::block_in_place(|| slept = Some(sleep()))));
    slept
}

fn failed() -> Error {
    Error::new(ErrorKind::Internal, "a task on dlock's own thread failed")
}
