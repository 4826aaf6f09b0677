//! The command as a process: it is started in a group of its own, and it does not outlive this program.
//!
//! On Linux the kernel kills the command when this program dies, even by `kill -9`. A process can ask for that only for itself,
//! so the child begins as this program, asks, and then becomes the command. Without a terminal a [supervisor](super::supervisor)
//! stands in between, which ends the whole group. Elsewhere a command goes on after `kill -9`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

#[cfg(target_os = "linux")]
use super::supervisor::Deadline;
use crate::exit::{Exit, Failure};

/// A supervisor that has not ended the command this long after the grace does not work.
const SUPERVISOR_TIME: Duration = Duration::from_secs(2);

/// Set for the child that is to become the command: the process id of its parent.
const PARENT: &str = "DLOCK_RUN_PARENT";

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

/// How the command has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(pub(super) ExitStatus);

impl Ended {
    pub(crate) fn exit(self) -> Exit {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&self.0) {
            return Exit::of_signal(signal);
        }
        Exit(self.0.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::NO.0))
    }
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
            process.env_remove(PARENT).env(name, value);
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

/// The process that becomes the command.
#[cfg(target_os = "linux")]
pub(super) fn starter(command: &[OsString]) -> Result<tokio::process::Command, Failure> {
    let this_program = std::env::current_exe();
    let this_program =
        this_program.map_err(|error| Failure::new(Exit::INTERNAL, format!("the path of this program: {error}")))?;
    let mut starter = tokio::process::Command::new(this_program);
    starter.args(command).env(PARENT, std::process::id().to_string());
    Ok(starter)
}

#[cfg(not(target_os = "linux"))]
fn starter(command: &[OsString]) -> Result<tokio::process::Command, Failure> {
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::usage("which command?"))?;
    let mut starter = tokio::process::Command::new(program);
    starter.args(arguments);
    Ok(starter)
}

/// In the child: becomes the command. Gives the failure if it cannot, and nothing in the program itself.
#[cfg(target_os = "linux")]
pub(crate) fn become_child() -> Option<Failure> {
    use std::os::unix::process::CommandExt;

    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    let parent = std::env::var(PARENT).ok()?;
    let mut words = std::env::args_os().skip(1);
    let command = words.next()?;
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Some(Failure::new(Exit::INTERNAL, format!("the kernel cannot end the command with dlock: {error}")));
    }
    // If the parent died before the kernel was asked, it will not tell.
    if getppid().is_none_or(|now| now.as_raw_nonzero().to_string() != parent) {
        return Some(Failure::new(Exit::INTERNAL, "dlock died before the command began"));
    }
    let error = std::process::Command::new(&command).args(words).env_remove(PARENT).exec();
    Some(cannot_execute(Some(&command), &error))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn become_child() -> Option<Failure> {
    None
}

pub(super) fn cannot_execute(command: Option<impl AsRef<OsStr>>, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NOT_FOUND } else { Exit::CANNOT_EXECUTE };
    let command = command.map(|command| command.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
    Failure::new(exit, format!("{command}: {error}"))
}
