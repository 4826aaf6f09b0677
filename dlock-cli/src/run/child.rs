//! The command as a process: it is started in a group of its own, and it does not outlive this program.
//!
//! On Linux the kernel kills the command when this program dies, even by `kill -9`. A process can ask for that only for itself,
//! so the child begins as this program, asks, and then becomes the command. Elsewhere a command goes on after `kill -9`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use crate::exit::{Exit, Failure};

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
}

/// How the command has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(ExitStatus);

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
    pub(crate) fn start(command: &[OsString], variables: &[(&str, String)]) -> Result<Self, Failure> {
        let leads_group = cfg!(unix) && !std::io::IsTerminal::is_terminal(&io::stdin());
        let mut process = starter(command)?;
        process.envs(variables.iter().map(|(name, value)| (name, value))).kill_on_drop(true);
        #[cfg(unix)]
        if leads_group {
            process.process_group(0);
        }
        let process = process.spawn().map_err(|error| cannot_execute(command.first(), &error))?;
        let pid = process.id();
        Ok(Self { process, leads_group, pid })
    }

    pub(crate) async fn wait(&mut self) -> Result<Ended, Failure> {
        let ended = self.process.wait().await;
        ended.map(Ended).map_err(|error| Failure::new(Exit::INTERNAL, format!("the command: {error}")))
    }

    /// Ends the command: TERM, then KILL after the grace. All processes of its group end with it.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Result<(), Failure> {
        const TERM: i32 = 15;
        const KILL: i32 = 9;
        self.signal(TERM);
        let _ = tokio::time::timeout(grace, self.process.wait()).await;
        // Also after its end: a process of its group may still run.
        self.signal(KILL);
        let _ = self.process.start_kill();
        self.wait().await.map(drop)
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
fn starter(command: &[OsString]) -> Result<tokio::process::Command, Failure> {
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

fn cannot_execute(command: Option<impl AsRef<OsStr>>, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NOT_FOUND } else { Exit::CANNOT_EXECUTE };
    let command = command.map(|command| command.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
    Failure::new(exit, format!("{command}: {error}"))
}
