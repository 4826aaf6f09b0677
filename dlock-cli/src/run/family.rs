//! The processes that end with the lock: the command, and what it has started.
//!
//! Without a terminal they are a process group, which the supervisor leads. With a terminal they must stay in the
//! shell's group, so that they may read from the terminal. Other programs of the shell's line are in that group too
//! (`dlock run … | tee log`). So there the family is the supervisor's descendants that are in its session.

use std::fs;
use std::time::Duration;

use rustix::io;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, waitpid,
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
        if Leaders::of(getpid()).is_some_and(|leaders| leaders.group == getpid().as_raw_pid()) {
            return Ok(Self::Group);
        }
        // A process whose parent has ended stays a descendant.
        set_child_subreaper(Some(getpid()))?;
        Ok(Self::Descendants)
    }

    /// Sends a signal to the family. A group includes this process. False if no process was reached: a process of
    /// another user, such as `sudo`, cannot be.
    pub(super) fn signal(self, signal: Signal) -> bool {
        match self {
            Self::Group => kill_process_group(getpid(), signal).is_ok(),
            Self::Descendants => signal_descendants(getpid(), signal),
        }
    }

    /// Kills the family. If this process leads the group, it kills itself too. Otherwise it returns when all processes
    /// that it may kill are gone.
    pub(super) fn kill(self, command: &mut tokio::process::Child) {
        // Processes that have not ended yet may have started more.
        while self.signal(Signal::KILL) {
            std::thread::sleep(LOOK_AGAIN);
            // A process that has ended stays a descendant until its parent has read its exit status.
            let _ = command.try_wait();
            self.bury_orphans(command.id());
        }
    }

    /// Reads the exit status of processes whose parent ended before them. The exit status of the command is read
    /// elsewhere.
    pub(super) fn bury_orphans(self, command: Option<u32>) {
        if let Self::Descendants = self {
            for child in children(getpid()).filter(|child| u32::try_from(child.as_raw_nonzero().get()).ok() != command)
            {
                let _ = waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
    }
}

/// Sends a signal to all descendants of a process that are in the session of this process. A daemon has left the
/// session on purpose. False if no process was reached.
pub(super) fn signal_descendants(of: Pid, signal: Signal) -> bool {
    descendants(of).into_iter().filter(|descendant| kill_process(*descendant, signal).is_ok()).count() > 0
}

fn descendants(of: Pid) -> Vec<Pid> {
    let own = Leaders::of(getpid()).map(|leaders| leaders.session);
    let mut found: Vec<Pid> = children(of).collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    found.retain(|pid| Leaders::of(*pid).map(|leaders| leaders.session) == own);
    found
}

/// The leaders of a process's group and of its session. Zero: the leader is outside of this container, as after
/// `nsenter`. All descendants with a zero have the same leader. The calls `getpgrp` and `getsid` of rustix must not
/// give a zero (`docs/upstream/rustix.md`).
#[derive(Debug, PartialEq, Eq)]
struct Leaders {
    group: i32,
    session: i32,
}

impl Leaders {
    /// None if the process is gone.
    fn of(process: Pid) -> Option<Self> {
        Self::in_stat(&fs::read(format!("/proc/{}/stat", process.as_raw_pid())).ok()?)
    }

    /// `man 5 proc_pid_stat`: the name in parentheses may have any bytes, and state, parent, group and session follow it.
    fn in_stat(stat: &[u8]) -> Option<Self> {
        let stat = String::from_utf8_lossy(stat);
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(2).map_while(|field| field.parse().ok());
        Some(Self { group: fields.next()?, session: fields.next()? })
    }
}

/// None where the kernel does not list them.
fn children(of: Pid) -> impl Iterator<Item = Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", of.as_raw_pid()));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>());
    pids.filter_map(|pid| Pid::from_raw(pid.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaders_of_a_process_stand_behind_its_name_and_may_be_outside_of_the_container() {
        let leaders = |stat: &[u8]| Leaders::in_stat(stat);
        assert_eq!(leaders(b"7 (sh) S 1 5 3 0 -1"), Some(Leaders { group: 5, session: 3 }));
        assert_eq!(leaders(b"7 (a) R 9 9 \xff) S 1 0 0 0 -1"), Some(Leaders { group: 0, session: 0 }));
        assert_eq!(leaders(b"7 (sh) S 1"), None);
        assert!(Leaders::of(getpid()).is_some());
    }
}
