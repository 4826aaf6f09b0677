//! The processes that end with the lock: the command, and what it has started.
//!
//! Without a terminal they are a process group, which the supervisor leads. With a terminal they must stay in the group that the
//! shell has made, where they may read from the terminal. Other programs of the shell's line stand in that group too
//! (`dlock run … | tee log`). So there they are the descendants of the supervisor, in its session.

use std::fs;
use std::time::Duration;

use rustix::io;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, getsid, kill_process, kill_process_group, set_child_subreaper, waitpid,
};

/// The pause between two looks whether all are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The family of this process, which is the supervisor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    Group,
    Descendants,
}

impl Family {
    pub(super) fn of_this_process() -> io::Result<Self> {
        if getpgrp() == getpid() {
            return Ok(Self::Group);
        }
        // A process whose parent has ended stays a descendant.
        set_child_subreaper(Some(getpid()))?;
        Ok(Self::Descendants)
    }

    /// The group includes this process. False if nobody was reached: another user's process, such as `sudo`, cannot be.
    pub(super) fn signal(self, signal: Signal) -> bool {
        match self {
            Self::Group => kill_process_group(getpgrp(), signal).is_ok(),
            Self::Descendants => signal_descendants(getpid(), signal),
        }
    }

    /// Kills all of them, this process too if it leads their group. Else it returns when those that can be killed are gone.
    pub(super) fn kill(self, command: &mut tokio::process::Child) {
        // Those that have not ended yet may have started more.
        while self.signal(Signal::KILL) {
            std::thread::sleep(LOOK_AGAIN);
            // One that has ended is a descendant until its parent has asked how it ended.
            let _ = command.try_wait();
            self.bury_orphans(command.id());
        }
    }

    /// Asks how those have ended whose parent ended before them. The command has a parent that asks.
    pub(super) fn bury_orphans(self, command: Option<u32>) {
        if let Self::Descendants = self {
            for child in children(getpid()).filter(|child| u32::try_from(child.as_raw_nonzero().get()).ok() != command)
            {
                let _ = waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
    }
}

/// To all descendants of a process that are in the session of this one: a daemon leaves it on purpose. False if none was
/// reached.
pub(super) fn signal_descendants(of: Pid, signal: Signal) -> bool {
    descendants(of).into_iter().filter(|descendant| kill_process(*descendant, signal).is_ok()).count() > 0
}

fn descendants(of: Pid) -> Vec<Pid> {
    let own = getsid(None).ok();
    let mut found: Vec<Pid> = children(of).collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    found.retain(|pid| getsid(Some(*pid)).ok() == own);
    found
}

/// None where the kernel does not list them.
fn children(of: Pid) -> impl Iterator<Item = Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", of.as_raw_nonzero()));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>());
    pids.filter_map(|pid| Pid::from_raw(pid.ok()?))
}
