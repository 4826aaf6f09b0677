//! Our own thread: renewals, pushes, abandons and late releases, which no busy caller can starve.
//!
//! The only file that spawns. Nothing of the user's runs on this thread, because it may block or panic: see
//! [`foreign`](crate::foreign) and [`log`](crate::log).

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::ThreadId;

use once_cell::sync::OnceCell;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinHandle};

use crate::alarm::drive;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign;
use crate::origin::Origin;

/// A thread of ours with a runtime, started at first use and ended with the process.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    pid: u32,
    alive: Arc<AtomicBool>,
}

/// Our thread.
///
/// # Errors
/// When the operating system gives no thread, when the thread has died, and in a child after `fork`, which has none:
/// there a lock could be taken but never renewed.
pub fn background() -> Result<&'static Background> {
    background_of(std::process::id())
}

static THREAD: OnceCell<Background> = OnceCell::new();

thread_local!(static IS_OURS: Cell<bool> = const { Cell::new(false) });

/// The thread for code of the user's that would else run on our thread.
///
/// # Errors
/// As [`background`].
pub fn foreign_thread() -> Result<&'static Background> {
    static FOREIGN: OnceCell<Background> = OnceCell::new();
    let start = || Background::start("dlock-foreign", |runtime| runtime.block_on(std::future::pending()));
    FOREIGN.get_or_try_init(start)?.in_process(std::process::id())
}

/// Our thread, for a caller that has just asked for the process's id: that is a system call.
///
/// # Errors
/// As [`background`].
pub fn background_of(pid: u32) -> Result<&'static Background> {
    let start = || {
        Background::start("dlock", |runtime| {
            IS_OURS.set(true);
            runtime.block_on(drive(&Clock::system()));
        })
    };
    THREAD.get_or_try_init(start)?.in_process(pid)
}

/// Is this our own thread?
pub fn is_ours() -> bool {
    IS_OURS.get()
}

/// Is this a child after `fork`? Our thread, the connections and every hold stayed with the parent; a mutex may be locked
/// for good, by a thread that the child does not have.
pub fn is_forked() -> bool {
    THREAD.get().is_some_and(|thread| thread.pid != std::process::id())
}

/// # Errors
/// In a child after `fork`: a request of it would go over the parent's sockets, and free the parent's locks.
pub fn not_forked() -> Result<()> {
    if is_forked() { Err(forked()) } else { Ok(()) }
}

fn forked() -> Error {
    Error::new(
        ErrorKind::Unsupported { need: "a process that was not forked after dlock's first use".into() },
        "dlock was used before this process was forked: its thread, its connections and its locks stayed with the parent; \
         start a new program instead (fork and exec)",
    )
}

/// Starts our thread if it was not started yet.
pub(crate) fn start() {
    if THREAD.get().is_none() {
        // A caller that needs the thread gets the error when it asks for it.
        let _ = background();
    }
}

impl Background {
    fn start(name: &str, run: impl FnOnce(tokio::runtime::Runtime) + Send + 'static) -> Result<Self> {
        let fault = |error: std::io::Error| {
            Error::new(ErrorKind::Internal, "dlock's own thread could not be started").because(error)
        };
        let alive = Arc::new(AtomicBool::new(true));
        let ended = Ended(alive.clone());
        let (started, handle) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _ended = ended;
                // Made here: a runtime that finds no thread could not be dropped inside of the caller's.
                match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => {
                        foreign::learn_wakers(&runtime);
                        let _ = started.send(Ok(runtime.handle().clone()));
                        run(runtime);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            })
            .map_err(fault)?;
        let handle = handle.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into())).map_err(fault)?;
        Ok(Self { handle, pid: std::process::id(), alive })
    }

    /// The thread, if it is of this process and lives.
    fn in_process(&self, pid: u32) -> Result<&Self> {
        if self.pid != pid {
            return Err(forked());
        }
        if !self.alive.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Internal, "dlock's own thread has died; nothing could be renewed"));
        }
        Ok(self)
    }

    /// Runs `task` to its end, also if its caller is gone.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Runs what blocks, on a thread of its own.
    pub fn block(&self, work: impl FnOnce() + Send + 'static) {
        self.handle.spawn_blocking(work);
    }

    /// Runs `task` here and gives its output; dropping the returned future ends the task.
    pub fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Run<T> {
        Run(self.handle.spawn(task))
    }
}

/// Runs `work` on a thread of its own, which ends with it: for calls that block for as long as a disk likes.
///
/// # Errors
/// When the operating system gives no thread.
pub fn aside(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|error| Error::outage("the operating system gave no thread").because(error))
}

/// Marks the thread as dead when it ends, also by a panic.
#[derive(Debug)]
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A task on our thread whose output somebody awaits.
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
        self.0.abort();
    }
}

/// A runtime of the caller's, to run tasks in from anywhere for as long as it lives.
#[derive(Clone, Debug)]
pub struct CallerRuntime(Handle);

impl CallerRuntime {
    /// The present runtime.
    ///
    /// # Errors
    /// Outside of any.
    pub fn here() -> Result<Self> {
        let outside = |_| Error::new(ErrorKind::Internal, "a backend was called outside of a runtime");
        Handle::try_current().map(Self).map_err(outside)
    }

    /// The identity of this runtime.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin::of(&self.0)
    }

    /// Spawns a task there.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task).abort_handle()
    }
}

/// Ends a task when it is dropped.
#[derive(Debug)]
pub struct EndsTask(pub AbortHandle);

impl Drop for EndsTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The only thread that goes on with tasks, and their runtime: that of a current-thread runtime, or one that drives a
/// `LocalSet`. While it is parked, they stand still.
pub type SoleThread = (Origin, ThreadId);

/// The present thread, if it drives a current-thread runtime. A thread of `spawn_blocking` belongs to that runtime too, but
/// gives another value.
pub fn sole_thread() -> Option<SoleThread> {
    origin_and_sole_thread().1
}

/// [`Origin::here`](crate::Origin::here) and [`sole_thread`], with one look-up of the runtime.
pub fn origin_and_sole_thread() -> (Option<Origin>, Option<SoleThread>) {
    let Ok(handle) = Handle::try_current() else { return (None, None) };
    let alone = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    (Some(Origin::of(&handle)), alone.then(|| (Origin::of(&handle), std::thread::current().id())))
}

/// Makes a clock go on with that of the present runtime, which is paused.
#[cfg(feature = "testing")]
pub(crate) fn follow(clock: &Clock) {
    let Ok(handle) = Handle::try_current() else { return };
    let clock = clock.clone();
    handle.spawn(async move {
        loop {
            // Before the time is told, and after that: tokio's clock jumps as soon as this runtime has nothing to do, and
            // knows nothing of our thread.
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
