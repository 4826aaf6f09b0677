//! The command as a process: it is started in a group of its own, and it does not outlive this program.
//!
//! Without a terminal a [supervisor](super::supervisor) stands between the two on Linux, and ends the whole group.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use super::starter::{Ended, cannot_execute, starter};
#[cfg(target_os = "linux")]
use super::supervisor::Deadline;
use crate::exit::{Exit, Failure};

/// A supervisor that has not ended the command this long after the grace does not work.
const SUPERVISOR_TIME: Duration = Duration::from_secs(2);

/// The command while it runs.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    /// On a terminal the command stays in the group of this program, where it can read; elsewhere it leads its own.
    leads_group: bool,
    /// Known beyond its end, for the rest of its group.
    pid: Option<u32>,
    grace: Duration,
    /// If it has a supervisor.
    #[cfg(target_os = "linux")]
    deadline: Option<Deadline>,
}

impl Child {
    /// With the time after which it ends unless it is told another one, if that is known.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, String)],
        grace: Duration,
        left: Option<Duration>,
    ) -> Result<Self, Failure> {
        let leads_group = cfg!(unix) && !std::io::IsTerminal::is_terminal(&io::stdin());
        let mut process = starter(command)?;
        #[cfg(not(target_os = "linux"))]
        let _ = left;
        #[cfg(target_os = "linux")]
        let deadline = leads_group.then(|| Deadline::new(left)).transpose()?;
        #[cfg(target_os = "linux")]
        if let Some(deadline) = &deadline {
            let (name, value) = deadline.variable(grace);
            process.env(name, value);
        }
        process.envs(variables.iter().map(|(name, value)| (name, value))).kill_on_drop(true);
        #[cfg(unix)]
        if leads_group {
            process.process_group(0);
        }
        let process = process.spawn().map_err(|error| cannot_execute(command.first(), &error))?;
        let pid = process.id();
        Ok(Self {
            process,
            leads_group,
            pid,
            grace,
            #[cfg(target_os = "linux")]
            deadline,
        })
    }

    /// The supervisor ends the command after this time, unless it is told another one.
    #[cfg(target_os = "linux")]
    pub(crate) fn ends_after(&self, left: impl FnOnce() -> Duration) -> Result<(), Failure> {
        self.deadline.as_ref().map_or(Ok(()), |deadline| deadline.set(left))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn ends_after(&self, _left: impl FnOnce() -> Duration) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) async fn wait(&mut self) -> Result<Ended, Failure> {
        let ended = self.process.wait().await;
        ended.map(Ended).map_err(|error| Failure::new(Exit::INTERNAL, format!("the command: {error}")))
    }

    /// Ends the command: TERM, then KILL after the grace. All processes of its group end with it.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        const TERM: i32 = 15;
        const KILL: i32 = 9;
        let mut grace = self.grace;
        if self.ask_supervisor()? {
            grace += SUPERVISOR_TIME;
        } else {
            self.signal(TERM);
        }
        let _ = tokio::time::timeout(grace, self.process.wait()).await;
        // Also after its end: a process of its group may still run.
        self.signal(KILL);
        let _ = self.process.start_kill();
        self.wait().await.map(drop)
    }

    /// Lets the supervisor end the command, so that the group gets one TERM. False if there is none.
    #[cfg(target_os = "linux")]
    fn ask_supervisor(&self) -> Result<bool, Failure> {
        use rustix::process::{Pid, Signal, kill_process};

        let Some(deadline) = &self.deadline else { return Ok(false) };
        deadline.pass()?;
        // Wakes it. It may have ended.
        if let Some(pid) = self.process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        Ok(true)
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_supervisor(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Sends a signal to the command and to its group.
    #[cfg(unix)]
    pub(crate) fn signal(&self, number: i32) {
        use rustix::process::{Pid, Signal, kill_process, kill_process_group};

        let Some(signal) = Signal::from_named_raw(number) else { return };
        let Some(pid) = self.pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else { return };
        // It may have ended meanwhile.
        let _ = match self.leads_group {
            true => kill_process_group(pid, signal),
            // After its end the number may be that of another process.
            false if self.process.id().is_some() => kill_process(pid, signal),
            false => Ok(()),
        };
    }

    #[cfg(not(unix))]
    pub(crate) fn signal(&self, _number: i32) {}
}
