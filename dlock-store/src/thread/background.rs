//! Starts threads and tasks: threads of ours that have a runtime, threads for work that blocks, and tasks on a caller's runtime.
//!
//! The only file that spawns. It does not know the clock, so the files between this one and `own_thread`
//! can use it.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use dlock_contract::{Error, ErrorKind, Origin, Result};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinHandle};

use crate::thread::polls::counted;

/// A thread of ours with a runtime, which ends with the process.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    pub(crate) pid: u32,
    alive: Arc<AtomicBool>,
}

thread_local!(static IS_OURS: Cell<bool> = const { Cell::new(false) });

/// Whether this is our own thread.
pub fn is_ours() -> bool {
    IS_OURS.get()
}

/// From here on the present thread is our own one.
pub(crate) fn becomes_ours() {
    IS_OURS.set(true);
}

/// The process that has started a thread of ours.
static STARTED_IN: OnceLock<u32> = OnceLock::new();

/// Whether this is a child after `fork`. Our thread, the connections and every hold stayed with the parent; a mutex may be locked
/// for good, by a thread that the child does not have.
pub fn is_forked() -> bool {
    STARTED_IN.get().is_some_and(|pid| *pid != std::process::id())
}

pub(crate) fn forked() -> Error {
    Error::new(
        ErrorKind::Unsupported { need: "a process that was not forked after dlock's first use".into() },
        "dlock was used before this process was forked: its thread, its connections and its locks stayed with the parent; \
         start a new program instead (fork and exec)",
    )
}

impl Background {
    /// `first` runs on the thread before anybody else can use it, `wakes` whenever it goes on after a pause, and then `main`
    /// for as long as the process lives.
    pub(crate) fn start(
        name: &str,
        first: impl FnOnce(&Runtime) + Send + 'static,
        wakes: fn(),
        main: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self> {
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
                match Builder::new_current_thread().enable_all().on_thread_unpark(wakes).build() {
                    Ok(runtime) => {
                        first(&runtime);
                        let _ = started.send(Ok(runtime.handle().clone()));
                        runtime.block_on(main);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            })
            .map_err(fault)?;
        let handle = handle.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into())).map_err(fault)?;
        let pid = std::process::id();
        STARTED_IN.get_or_init(|| pid);
        Ok(Self { handle, pid, alive })
    }

    /// The thread of a simulated process, which the simulation drives.
    #[cfg(feature = "simulation")]
    pub(crate) fn of_simulation(handle: Handle) -> Self {
        Self { handle, pid: std::process::id(), alive: Arc::new(AtomicBool::new(true)) }
    }

    /// The thread, if it is of this process and lives.
    pub(crate) fn in_process(&self, pid: u32) -> Result<&Self> {
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
        self.handle.spawn(counted(task));
    }

    /// Runs `task`, and gives the way to its output.
    pub(crate) fn task<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(counted(task))
    }

    /// Runs what blocks, on a thread of its own, and gives the way to its output.
    pub(crate) fn blocking_task<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn_blocking(work)
    }

    /// Runs what blocks, on a thread of its own.
    pub fn block(&self, work: impl FnOnce() + Send + 'static) {
        self.handle.spawn_blocking(work);
    }
}

/// Runs `work` on a thread of its own, which ends with it: for calls that block for as long as a disk likes.
///
/// # Errors
/// When the operating system gives no thread.
///
/// ```
/// dlock_store::aside("my-store-file", || drop(std::fs::read("locks.db")))?;
/// # Ok::<(), dlock_contract::Error>(())
/// ```
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

/// A runtime of the caller's, to run tasks in from anywhere for as long as it lives.
///
/// ```
/// use dlock_store::{CallerRuntime, EndsTask};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> dlock_contract::Result<()> {
/// let runtime = CallerRuntime::here()?;
/// // The task of a connection, which ends with the connection.
/// let _task = EndsTask(runtime.spawn(std::future::pending()));
/// # Ok(())
/// # }
/// ```
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

/// [`Origin::here`](dlock_contract::Origin::here) and [`sole_thread`], with one look-up of the runtime.
pub fn origin_and_sole_thread() -> (Option<Origin>, Option<SoleThread>) {
    let Ok(handle) = Handle::try_current() else { return (None, None) };
    let alone = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    (Some(Origin::of(&handle)), alone.then(|| (Origin::of(&handle), std::thread::current().id())))
}
