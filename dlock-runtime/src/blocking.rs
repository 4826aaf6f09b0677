//! The synchronous front: the caller's thread sleeps while our own does what is asynchronous.
//!
//! Parking works everywhere: on a worker of any runtime, in a `LocalSet`, and without a runtime, where tokio's own ways
//! to block panic. Where it would park the thread that must release, the answer is `WouldDeadlock` at once; a holder
//! that is a neighbour in a `LocalSet` of a multi-thread runtime cannot be seen, and costs the wait.

use std::future::Future;

use crate::ask::{Ask, acquire_all};
use crate::background::background;
use crate::error::{Error, ErrorKind, Result};
use crate::guards::{Guards, finish_all};
use crate::observe::Kept;
use crate::outcome::Ran;
use crate::probe;
use crate::scope;
use crate::sites::{Call, Site};

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
    if let Some(stop) = probe::caught(site, &call.keys) {
        return Err(stop);
    }
    acquire_sync(Ask::of_site(site, &call).parking(), call.keys)
}

pub(crate) fn acquire_sync(ask: Ask, keys: crate::sites::Keys) -> Result<Guards> {
    wait_for(scope::inherit(acquire_all(ask, keys)))?
}

/// The second half of [`run_sync`]. A body that runs on after a loss cannot be stopped; it can ask, and the caller is
/// told in any case.
#[doc(hidden)]
pub fn hold_sync<T>(guards: Guards, judge: Option<fn(&T) -> bool>, body: impl FnOnce() -> T) -> Ran<T> {
    if let Err(loss) = guards.check() {
        return Ran::Lost(loss, None);
    }
    let output = scope::within(Some(guards.innermost().clone()), body);
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
    wait_for(finish_all(guards))?
}

/// Runs `future` on our thread while this one sleeps. Observers hear of it from this one, when it wakes.
fn wait_for<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let kept = Kept::default();
    let working = kept.during(future);
    background()?.spawn(async move {
        // Nobody listens any more only if the caller's thread is gone.
        let _ = tell.send(working.await);
    });
    let answer = told.recv();
    kept.tell();
    answer.map_err(|_| Error::new(ErrorKind::Internal, "a task on dlock's own thread failed"))
}
