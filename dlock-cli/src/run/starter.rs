//! The process that becomes the command.
//!
//! On Linux the kernel kills the command when its parent dies, even by `kill -9`. A process can ask for that only for itself, so
//! it begins as this program, asks, and then becomes the command. Elsewhere a command goes on after `kill -9`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitStatus;

use crate::exit::{Exit, Failure};

/// Set for the child that is to become the command: the process id of its parent.
#[cfg(target_os = "linux")]
const PARENT: &str = "DLOCK_RUN_PARENT";

/// The process that becomes the command.
#[cfg(target_os = "linux")]
pub(super) fn starter(command: &[OsString]) -> Result<tokio::process::Command, Failure> {
    // Not its path: the file may have been replaced while this program waited.
    let mut starter = tokio::process::Command::new("/proc/self/exe");
    starter.arg0("dlock").args(command).env(PARENT, std::process::id().to_string());
    Ok(starter)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn starter(command: &[OsString]) -> Result<tokio::process::Command, Failure> {
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

/// How the command has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(pub(super) ExitStatus);

impl Ended {
    #[cfg(target_os = "linux")]
    pub(super) fn by_signal(self) -> bool {
        std::os::unix::process::ExitStatusExt::signal(&self.0).is_some()
    }

    pub(crate) fn exit(self) -> Exit {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&self.0) {
            return Exit::of_signal(signal);
        }
        Exit(self.0.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::NO.0))
    }
}
