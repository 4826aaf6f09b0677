//! One running server: its start, its signals, its end.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::folder::Folder;
use super::{Recipe, leftovers, ports};
use crate::error::Context;
use crate::spawn::{spawn, spawn_as_nobody};
use crate::{Error, Result, children, nobody};

/// Long enough for a database on a machine that is busy compiling.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// A database that writes down what it has in memory.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const LOG: &str = "server.log";

/// A private server, killed and removed when dropped.
///
/// All calls block; from async code they are short enough for a test, [`start`](Self::start) and
/// [`restart`](Self::restart) aside.
pub struct Instance {
    recipe: Box<dyn Recipe>,
    port: u16,
    process: Mutex<Option<Child>>,
    // Last, so that the folder goes after the process.
    folder: Folder,
}

impl Instance {
    /// Starts a server and returns once it answers.
    pub fn start(recipe: impl Recipe) -> Result<Self> {
        Self::start_on(recipe, ports::claim())
    }

    /// The same on a port that was [claimed](super::free_port) before, so that others could be told of it.
    pub fn start_on(recipe: impl Recipe, port: u16) -> Result<Self> {
        let folder = Folder::new(recipe.name()).context("a folder for the server")?;
        if recipe.refuses_root() {
            nobody::give(folder.path()).context("the owner of the folder")?;
        }
        recipe.prepare(folder.path())?;
        let instance = Self { recipe: Box::new(recipe), port, process: Mutex::new(None), folder };
        instance.launch()?;
        Ok(instance)
    }

    /// Starts several side by side; none is left if one does not start.
    pub fn start_all<R: Recipe>(recipes: impl IntoIterator<Item = R>) -> Result<Vec<Self>> {
        side_by_side(recipes, Self::start)
    }

    /// Restarts several side by side, as those must that need each other to be ready.
    pub fn restart_all<'a>(instances: impl IntoIterator<Item = &'a Self>) -> Result<()> {
        side_by_side(instances, Self::restart).map(drop)
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        self.recipe.url(self.port)
    }

    /// The same, but through another port: a proxy's.
    pub fn url_at(&self, port: u16) -> String {
        self.recipe.url(port)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where it listens; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// Its own folder: data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One request over a fresh connection, in the server's plain language.
    ///
    /// Redis: a command line. MySQL, MariaDB, PostgreSQL: a statement (`OK 1` is a change of one row). etcd: `/path` to
    /// get, `/path {json}` to post.
    /// ZooKeeper: a word of four letters.
    pub fn ask(&self, request: &str) -> Result<String> {
        self.recipe.ask(self.addr(), request).context(format_args!("{} about `{request}`", self.recipe.name()))
    }

    /// Stops it where it stands (SIGSTOP), with the processes that it started, and returns when it has: connects still
    /// succeed, answers do not come.
    pub fn pause(&self) -> Result<()> {
        self.with_process(children::stop)?.map(drop).context("the signal")
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) -> Result<()> {
        self.with_process(children::resume)?.context("the signal")
    }

    /// Kills it, with the processes that it started, and returns when it is gone. Its folder and its port stay.
    pub fn kill9(&self) -> Result<()> {
        if let Some(mut process) = self.process().take() {
            // One that has ended by itself has no children, and its number may be another's.
            let children = match process.try_wait() {
                Ok(None) => children::stop(&process).unwrap_or_default(),
                _ => Vec::new(),
            };
            children::signal_all(&children, Signal::KILL);
            process.kill().context("the kill")?;
            process.wait().context("the wait after the kill")?;
            children::wait_until_gone(&children);
        }
        Ok(())
    }

    /// Ends it as an operator does, and returns when it is gone. One that does not is killed. Its folder and its port stay.
    pub fn end(&self) -> Result<()> {
        let signal = self.recipe.end_signal();
        self.with_process(|process| kill_process(Pid::from_child(process), signal))?.context("the signal")?;
        let started = Instant::now();
        while started.elapsed() < END_TIMEOUT && self.with_process(|process| children::is_running(process.id()))? {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill9()
    }

    /// Starts it again with the same port and the same data, after a kill if it runs.
    pub fn restart(&self) -> Result<()> {
        self.kill9()?;
        self.launch()
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.folder().join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    fn launch(&self) -> Result<()> {
        let name = self.recipe.name();
        let command = self.recipe.command(self.folder(), self.port)?;
        let log = OpenOptions::new().create(true).append(true).open(self.folder().join(LOG)).context("the log")?;
        let errors = log.try_clone().context("the log")?;
        let spawn = if self.recipe.refuses_root() { spawn_as_nobody } else { spawn };
        let process = spawn(command, Stdio::from(log), Stdio::from(errors)).context(format_args!("starting {name}"))?;
        *self.process() = Some(process);
        self.wait_until_ready().map_err(|why| {
            let tail = self.log_tail();
            // A half-started server is of no use to anybody.
            let _ = self.kill9();
            Error::new(format!("{name} on port {} did not start: {why}; the end of its log:\n{tail}", self.port))
        })
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let answer = self.recipe.check(self.addr());
            // After the question: another server may have answered at its port.
            if let Some(process) = self.process().as_mut()
                && let Ok(Some(status)) = process.try_wait()
            {
                return Err(format!("it ended by itself ({status})"));
            }
            let Err(answer) = answer else { return Ok(()) };
            if started.elapsed() > START_TIMEOUT {
                return Err(format!("no good answer within {START_TIMEOUT:?}, the last one was: {answer}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// For signals: the guard keeps the process unreaped meanwhile, so the pid cannot belong to another process.
    fn with_process<T>(&self, work: impl FnOnce(&Child) -> T) -> Result<T> {
        let process = self.process();
        process.as_ref().map(work).ok_or_else(|| Error::new(format!("{} is not running", self.recipe.name())))
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn side_by_side<T: Send, R: Send>(all: impl IntoIterator<Item = T>, work: fn(T) -> Result<R>) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let working: Vec<_> = all.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        let panicked = |_| Error::new("a start panicked");
        working.into_iter().map(|work| work.join().map_err(panicked)?).collect()
    })
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Nothing sensible is left to do with an error here; the parent-death signal still stands.
        let _ = self.kill9();
        leftovers::free_shared_memory(self.folder());
    }
}
