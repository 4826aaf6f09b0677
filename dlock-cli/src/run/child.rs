//! The command as a process: it does not outlive this program.
//!
//! On Linux a [supervisor](super::supervisor) stands between the two, and ends the command with all that it has started.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::Duration;

#[cfg(target_os = "linux")]
use super::family::{Family, own_group};
use super::starter::{Ended, cannot_execute, starter};
#[cfg(target_os = "linux")]
use super::supervisor::Deadline;
use crate::exit::{Exit, Failure};

/// A supervisor that has not ended the command this long after the grace does not work, and is killed.
const SUPERVISOR_TIME: Duration = Duration::from_secs(2);

/// Whether the command leads a process group of its own. With a terminal it stays in the group of this program, since another one
/// could not read from the terminal: also a command with another standard input may ask for a password there.
pub(crate) fn leads_group() -> bool {
    cfg!(unix) && !io::stdin().is_terminal() && std::fs::File::open("/dev/tty").is_err()
}

/// The command while it runs.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    leads_group: bool,
    /// Kept after the command's end, because other processes of its group may still run.
    pid: Option<u32>,
    grace: Duration,
    #[cfg(target_os = "linux")]
    deadline: Deadline,
    #[cfg(target_os = "linux")]
    family: Family,
}

impl Child {
    /// Starts the command with these variables, and without those that have no value. On Linux it ends when `left` is over, unless
    /// [`ends_after`](Self::ends_after) sets another time.
    pub(crate) fn start(
        command: &[OsString],
        variables: [(&str, Option<String>); 3],
        grace: Duration,
        left: Option<Duration>,
    ) -> Result<Self, Failure> {
        let leads_group = leads_group();
        let mut process = starter(command)?;
        #[cfg(not(target_os = "linux"))]
        let _ = left;
        #[cfg(target_os = "linux")]
        let deadline = Deadline::new(left)?;
        #[cfg(target_os = "linux")]
        {
            let (name, value) = deadline.variable(grace);
            process.env(name, value);
        }
        #[cfg(target_os = "linux")]
        let family = Family::begin().map_err(|error| {
            Failure::new(Exit::INTERNAL, format!("the kernel cannot keep the command's orphans: {error}"))
        })?;
        for (name, value) in variables {
            match value {
                Some(value) => process.env(name, value),
                // A `dlock run` around this one may have set its own.
                None => process.env_remove(name),
            };
        }
        process.kill_on_drop(true);
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
            #[cfg(target_os = "linux")]
            family,
        })
    }

    /// Makes the supervisor end the command after this time.
    #[cfg(target_os = "linux")]
    pub(crate) fn ends_after(&self, left: impl FnOnce() -> Duration) -> Result<(), Failure> {
        self.deadline.set(left)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn ends_after(&self, _left: impl FnOnce() -> Duration) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) async fn wait(&mut self) -> Result<Ended, Failure> {
        let ended = self.process.wait().await;
        let ended = ended.map(Ended).map_err(|error| Failure::new(Exit::INTERNAL, format!("the command: {error}")))?;
        // The supervisor ends with a code. If somebody has killed it, nobody else ends the rest.
        #[cfg(target_os = "linux")]
        if ended.by_signal() {
            self.family.kill(&mut self.process).await;
        }
        Ok(ended)
    }

    /// Ends the command: TERM, then KILL after the grace. What it has started ends with it, before this returns.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        let grace = self.ask_for_the_end()?;
        let _ = tokio::time::timeout(grace, self.process.wait()).await;
        // The supervisor may have been stopped, or has ended as the command did.
        self.kill_all().await;
        self.wait().await.map(drop)
    }

    #[cfg(target_os = "linux")]
    async fn kill_all(&mut self) {
        let _ = self.process.start_kill();
        self.family.kill(&mut self.process).await;
    }

    #[cfg(not(target_os = "linux"))]
    async fn kill_all(&mut self) {
        const KILL: i32 = 9;
        // Also after its end: a process of its group may still run.
        self.signal(KILL);
        let _ = self.process.start_kill();
    }

    /// Asks the supervisor to end the command, and returns the time after which the supervisor is killed. Only the
    /// supervisor sends the signal, so that each process gets one.
    #[cfg(target_os = "linux")]
    fn ask_for_the_end(&self) -> Result<Duration, Failure> {
        use rustix::process::{Pid, Signal, kill_process};

        self.deadline.pass()?;
        // Wakes the supervisor, which may have ended.
        if let Some(pid) = self.process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        Ok(self.grace + SUPERVISOR_TIME)
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for_the_end(&self) -> Result<Duration, Failure> {
        const TERM: i32 = 15;
        self.signal(TERM);
        Ok(self.grace)
    }

    /// Sends a signal that this process got to the command and to what it has started. On a terminal INT and QUIT come from its
    /// keyboard, and the terminal's group has got them too. Most programs take a second Ctrl-C as "at once".
    #[cfg(target_os = "linux")]
    pub(crate) fn pass_on(&self, number: i32) {
        use rustix::process::{Pid, Signal, kill_process_group};

        let Some(signal) = Signal::from_named_raw(number) else { return };
        let group = self.pid.filter(|_| self.leads_group).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let is_of_keyboard = !self.leads_group && matches!(signal, Signal::INT | Signal::QUIT);
        let but = if is_of_keyboard { own_group() } else { group.map(Pid::as_raw_pid) };
        let ends = matches!(signal, Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT);
        // A process that was stopped must go on to end.
        for signal in [signal].into_iter().chain(ends.then_some(Signal::CONT)) {
            self.family.signal(signal, but);
            // It may have ended meanwhile.
            let _ = group.map(|group| kill_process_group(group, signal));
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn pass_on(&self, number: i32) {
        const INT: i32 = 2;
        const QUIT: i32 = 3;
        if self.leads_group || ![INT, QUIT].contains(&number) {
            self.signal(number);
        }
    }

    /// Sends a signal to the command, and to what it has started where it leads a group.
    #[cfg(all(unix, not(target_os = "linux")))]
    fn signal(&self, number: i32) {
        use rustix::process::{Pid, Signal, kill_process, kill_process_group};

        let Some(signal) = Signal::from_named_raw(number) else { return };
        let Some(pid) = self.pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else { return };
        // It may have ended meanwhile. Then the number may be that of another process.
        let _ = match self.leads_group {
            true => kill_process_group(pid, signal),
            false if self.process.id().is_none() => Ok(()),
            false => kill_process(pid, signal),
        };
    }

    #[cfg(not(unix))]
    fn signal(&self, _number: i32) {}
}
