//! The test binary again, as another process that can be stopped and killed.
//!
//! A binary with the standard harness needs one entry, under this very name; without a harness, `main` asks for
//! [`role`] first.
//!
//! ```no_run
//! use dlock_testkit::child::{Child, role};
//! use std::time::Duration;
//!
//! #[test]
//! fn child_main() {
//!     match role().as_deref() {
//!         Some("holder") => println!("held {}", std::env::var("KEY").unwrap()),
//!         Some(other) => panic!("no role {other}"),
//!         // A run of all tests.
//!         None => {}
//!     }
//! }
//!
//! #[test]
//! fn a_child_holds() {
//!     let mut child = Child::spawn("holder", &[("KEY", "k")]).unwrap();
//!     assert_eq!(child.wait_line("held ", Duration::from_secs(5)).unwrap(), "k");
//! }
//! ```

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::children::wait_until_stopped;
use crate::error::Context;
use crate::servers::shared;
use crate::spawn::spawn;
use crate::{Error, Result};

const ROLE: &str = "DLOCK_CHILD";

/// The role of this child process; `None` in the test itself.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A child process, killed when dropped and when this process ends.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Child {
    /// Runs this binary again as `role`, with more environment variables.
    ///
    /// The child uses the same [`shared`] servers as this process. Its errors go where ours go.
    pub fn spawn(role: &str, variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(env::current_exe().context("this program")?);
        // For the standard harness: this test only, with its output passed on. With one thread the harness would
        // print the test's name before the child's first line, on the same line.
        command.args(["child_main", "--exact", "--nocapture", "--test-threads=2"]);
        command.envs(shared().started()).envs(variables.iter().copied()).env(ROLE, role);
        Self::of(command)
    }

    /// Runs another program as a child. It reads nothing; its errors go where ours go.
    pub fn of(command: Command) -> Result<Self> {
        let mut process = spawn(command, Stdio::piped(), Stdio::inherit()).context("the child")?;
        let stdout = process.stdout.take().ok_or_else(|| Error::new("the child has no output"))?;
        let (sender, lines) = mpsc::channel();
        // It ends with the child, whose output it reads.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines, seen: Vec::new() })
    }

    /// Waits for a line that starts with `prefix` and returns the rest of it. Lines before it are skipped.
    pub fn wait_line(&mut self, prefix: &str, timeout: Duration) -> Result<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let why = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.strip_prefix(prefix).map(str::to_owned);
                    self.seen.push(line);
                    match found {
                        Some(rest) => return Ok(rest),
                        None => continue,
                    }
                }
                Err(RecvTimeoutError::Timeout) => format!("within {timeout:?}"),
                Err(RecvTimeoutError::Disconnected) => "before its output ended".to_owned(),
            };
            let seen = self.seen.join("\n");
            return Err(Error::new(format!("the child printed no line `{prefix}...` {why}; it printed:\n{seen}")));
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it, and returns when it is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.process.kill().context("the kill")?;
        self.process.wait().context("the wait after the kill").map(drop)
    }

    /// Freezes it where it stands (SIGSTOP), as a long garbage collection or a suspended machine would.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        wait_until_stopped(self.process.id());
        Ok(())
    }

    /// Lets it go on after [`stop`](Self::stop).
    pub fn cont(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM).
    pub fn term(&mut self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.process.try_wait().context("the wait")? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(Error::new(format!("the child did not end within {timeout:?}")));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // The kernel keeps the pid for us until the child is waited for. After that it may be another process.
        if let Some(status) = self.process.try_wait().context("the signal")? {
            return Err(Error::new(format!("the child has ended ({status})")));
        }
        kill_process(Pid::from_child(&self.process), signal).context("the signal")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Gone already, or nothing to be done about it.
        let _ = self.kill9();
    }
}
