//! Our thread: renewals, pushes, abandons and late releases, which no busy caller can starve.
//!
//! Nothing of the user's runs on it, because it may block or panic: see `foreign`, `log` and
//! `library_lines`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};

use dlock_contract::{Error, ErrorKind, Result};
use once_cell::sync::OnceCell;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::clock::alarm::drive;
#[cfg(feature = "testing")]
use crate::thread::background::CallerRuntime;
use crate::thread::background::{Background, becomes_ours, forked, is_forked};
use crate::thread::foreign;
use crate::thread::library_lines;
use crate::thread::simulation;

/// Our thread.
///
/// # Errors
/// When the operating system gives no thread, when the thread has died, and in a child after `fork`, which has none:
/// there a lock could be taken but never renewed.
///
/// ```
/// let run = dlock_store::background()?.run(async { std::thread::current().name().map(str::to_owned) });
/// assert_eq!(futures::executor::block_on(run)?.as_deref(), Some("dlock"));
/// # Ok::<(), dlock_contract::Error>(())
/// ```
pub fn background() -> Result<&'static Background> {
    background_of(std::process::id())
}

static THREAD: OnceCell<Background> = OnceCell::new();

/// Our thread, for a caller that has just asked for the process's id: that is a system call.
///
/// # Errors
/// As [`background`].
pub fn background_of(pid: u32) -> Result<&'static Background> {
    if let Some(simulated) = simulation::own_thread() {
        return Ok(simulated);
    }
    let start = || {
        library_lines::prepare();
        let first = |runtime: &_| {
            foreign::learn_wakers(runtime);
            becomes_ours();
            library_lines::keep_layers_away();
        };
        Background::start("dlock", first, library_lines::keep_layers_away, async { drive(&Clock::system()).await })
    };
    THREAD.get_or_try_init(start)?.in_process(pid)
}

/// Locks a mutex of the engine. None in a child after `fork`, if a thread of the parent had locked it just then: nobody unlocks the
/// copy.
pub fn lock_unless_forked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) if is_forked() => None,
        Err(TryLockError::WouldBlock) => Some(mutex.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// # Errors
/// In a child after `fork`: a request of it would go over the parent's sockets, and free the parent's locks.
pub fn not_forked() -> Result<()> {
    if is_forked() { Err(forked()) } else { Ok(()) }
}

/// Starts our thread if it was not started yet.
pub(crate) fn start() {
    if THREAD.get().is_none() {
        // A caller that needs the thread gets the error when it asks for it.
        let _ = background();
    }
}

impl Background {
    /// Runs `task` here and gives its output; dropping the returned future ends the task.
    pub fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Run<T> {
        Run(self.task(task))
    }

    /// Runs what may block for any time, such as the reading of a file, and gives its output. It has a thread of its own:
    /// on our thread it would stop all renewals. Work that has begun goes on if the returned future is dropped.
    pub fn run_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Run<T> {
        Run(self.blocking_task(work))
    }
}

/// A task of ours whose output somebody awaits.
#[derive(Debug)]
pub struct Run<T>(JoinHandle<T>);

impl<T> Future for Run<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        foreign::poll_guarded(cx, |cx| Pin::new(&mut self.0).poll(cx)).map(|joined| {
            joined
                .map_err(|error| Error::new(ErrorKind::Internal, "a task on dlock's own thread failed").because(error))
        })
    }
}

impl<T> Drop for Run<T> {
    fn drop(&mut self) {
        // In a child after `fork` the task is the parent's, and so is the thread that may have locked its queue just then.
        if !self.0.is_finished() && !is_forked() {
            self.0.abort();
        }
    }
}

#[cfg(feature = "testing")]
impl Clock {
    /// The clock of the test kit. It follows tokio's clock while that is paused.
    #[doc(hidden)]
    #[must_use]
    pub fn of_kit() -> Self {
        let (clock, follows) = Self::manual_of_kit();
        if follows {
            follow(&clock);
        }
        clock
    }
}

/// Makes a clock go on with that of the present runtime, which is paused.
#[cfg(feature = "testing")]
fn follow(clock: &Clock) {
    let Ok(runtime) = CallerRuntime::here() else { return };
    let clock = clock.clone();
    runtime.spawn(async move {
        loop {
            // Before the time is read, and after that: tokio's clock jumps as soon as this runtime has nothing to do,
            // and knows nothing of our thread.
            let_our_thread_run();
            let next = clock.sleepers().wake_due(clock.now());
            let_our_thread_run();
            let wait = async {
                match next {
                    Some(next) => tokio::time::sleep(next.since(clock.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = clock.sleepers().earlier() => {}
                () = wait => {}
            }
        }
    });
}

/// Lets our thread run until it is idle. A task may start further tasks, so it waits several times.
#[cfg(feature = "testing")]
fn let_our_thread_run() {
    for _ in 0..8 {
        let (reached, is_reached) = std::sync::mpsc::sync_channel(1);
        let Ok(background) = background() else { return };
        background.spawn(async move {
            let _ = reached.send(());
        });
        let _ = is_reached.recv();
        foreign::let_it_run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_system_clock_ends_a_sleep_on_any_executor() {
        background().unwrap();
        let clock = Clock::system();
        let before = clock.now();
        futures::executor::block_on(clock.sleep_until(before.after(Duration::from_millis(20))));
        assert!(clock.now().since(before) >= Duration::from_millis(20));
    }

    #[test]
    fn an_earlier_sleep_is_not_held_up_by_a_later_one() {
        background().unwrap();
        let clock = Clock::system();
        let now = clock.now();
        futures::executor::block_on(async {
            let late = clock.sleep_until(now.after(Duration::from_secs(3600)));
            let soon = clock.sleep_until(now.after(Duration::from_millis(10)));
            futures::future::select(late, soon).await;
        });
    }

    #[test]
    fn a_dropped_run_ends_its_task() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let run = background().unwrap().run(async move {
            let _sender = sender;
            std::future::pending::<()>().await;
        });
        drop(run);
        assert_eq!(
            receiver.recv_timeout(Duration::from_secs(10)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
        );
    }
}
