//! The processes that end with the lock: the command, and what it has started.
//!
//! They are the descendants of the supervisor, in its session. A process group would not do: programs such as `timeout` make a
//! group of their own, and on a terminal other programs of the shell's line (`dlock run … | tee log`) stand in the same group. A
//! daemon leaves the session on purpose.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use rustix::io;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

/// The pause between two looks whether all are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// All that this process has started since this was made.
#[derive(Debug)]
pub(super) struct Family {
    /// The children that were there before, such as those of a script that has become this program (`exec dlock run …`).
    earlier: Vec<Pid>,
}

impl Family {
    /// From now on a process whose parent has ended stays a descendant of this one.
    pub(super) fn begin() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let earlier = if sees_itself() { children(getpid()) } else { Vec::new() };
        Ok(Self { earlier })
    }

    /// Whether one of them has not ended.
    pub(super) fn lives(&self) -> bool {
        self.descendants().any(|descendant| !descendant.has_ended)
    }

    /// Sends a signal to those that are not in the group `but`.
    pub(super) fn signal(&self, signal: Signal, but: Option<i32>) {
        for descendant in self.descendants().filter(|descendant| Some(descendant.group) != but) {
            // It may have ended, or be another user's, such as `sudo`.
            let _ = kill_process(descendant.pid, signal);
        }
    }

    /// Kills them, and returns when those that can be killed are gone. The child of this process has an owner that asks how it
    /// ended.
    pub(super) async fn kill(&self, child: &mut tokio::process::Child) {
        let mut known = HashSet::new();
        loop {
            let mut is_news = false;
            for descendant in self.descendants() {
                let is_reached = !descendant.has_ended && kill_process(descendant.pid, Signal::KILL).is_ok();
                // A process that ends during a look takes its children out of it. They are found by the next one.
                is_news |= known.insert(descendant.pid) || is_reached;
            }
            if !is_news {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            let _ = child.try_wait();
            self.bury_orphans(child.id());
        }
    }

    /// Asks how those children have ended whose parent ended before them, which nobody else asks.
    pub(super) fn bury_orphans(&self, child: Option<u32>) {
        for orphan in self.children().filter(|orphan| u32::try_from(orphan.as_raw_pid()).ok() != child) {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }

    fn children(&self) -> impl Iterator<Item = Pid> {
        let all = if sees_itself() { children(getpid()) } else { Vec::new() };
        all.into_iter().filter(|child| !self.earlier.contains(child))
    }

    /// Those in the session of this process.
    fn descendants(&self) -> impl Iterator<Item = Process> {
        let mut found = self.children().collect::<Vec<_>>();
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            found.extend(children(parent));
            next += 1;
        }
        let session = Process::of(getpid()).map(|own| own.session);
        found.into_iter().filter_map(Process::of).filter(move |process| Some(process.session) == session)
    }
}

/// The group to which a shell or a terminal sends signals.
pub(super) fn own_group() -> Option<i32> {
    Some(Process::of(getpid())?.group)
}

/// The process that `/proc` shows as the parent of this one. It has another number there if `/proc` is that of another container.
pub(super) fn shown_parent() -> Option<i32> {
    Some(Process::in_stat(getpid(), &fs::read("/proc/self/stat").ok()?)?.parent)
}

fn children(of: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", of.as_raw_pid())).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let pid = |word: &str| Pid::from_raw(word.parse().ok()?);
    let mut found = Vec::new();
    for list in lists {
        match list {
            Ok(list) => found.extend(list.split_whitespace().filter_map(pid)),
            // A kernel without these lists, or a thread that has just ended.
            Err(_) => return children_among_all(of),
        }
    }
    found
}

fn children_among_all(of: Pid) -> Vec<Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| Process::of(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?));
    all.filter(|process| process.parent == of.as_raw_pid()).map(|process| process.pid).collect()
}

/// Whether `/proc` has this process under the number that it has for itself. In that of another container the numbers are those of
/// other processes.
fn sees_itself() -> bool {
    fs::read_link("/proc/self").is_ok_and(|shown| shown.to_str() == Some(&getpid().as_raw_pid().to_string()))
}

/// A process as `/proc` shows it. The group and the session are the numbers of their leaders. Zero is a leader outside of this
/// container, as after `nsenter`, and all descendants with a zero have the same one. The calls `getpgrp` and `getsid` of rustix
/// must not give a zero (`docs/upstream/rustix.md`).
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    has_ended: bool,
    parent: i32,
    group: i32,
    session: i32,
}

impl Process {
    /// None if it is gone.
    fn of(pid: Pid) -> Option<Self> {
        Self::in_stat(pid, &fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
    }

    /// `man 5 proc_pid_stat`: the name in parentheses may have any bytes, and state, parent, group and session follow it.
    fn in_stat(pid: Pid, stat: &[u8]) -> Option<Self> {
        let stat = String::from_utf8_lossy(stat);
        let (state, numbers) = stat.rsplit_once(") ")?.1.split_once(' ')?;
        let mut numbers = numbers.split(' ').map_while(|number| number.parse().ok());
        let has_ended = matches!(state, "Z" | "X");
        Some(Self { pid, has_ended, parent: numbers.next()?, group: numbers.next()?, session: numbers.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_behind_its_name_and_its_leaders_may_be_outside_of_the_container() {
        let pid = getpid();
        let process = |stat: &[u8]| Process::in_stat(pid, stat);
        let one = Process { pid, has_ended: false, parent: 1, group: 5, session: 3 };
        assert_eq!(process(b"7 (sh) S 1 5 3 0 -1"), Some(one));
        let odd = Process { pid, has_ended: true, parent: 9, group: 0, session: 0 };
        assert_eq!(process(b"7 (a) R 4 4 \xff) Z 9 0 0 0 -1"), Some(odd));
        assert_eq!(process(b"7 (sh) S 1"), None);
    }

    #[test]
    fn children_are_found_with_and_without_the_lists_of_the_kernel() {
        let before = Family { earlier: children(getpid()) };
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(sees_itself() && children(getpid()).contains(&pid) && children_among_all(getpid()).contains(&pid));
        assert!(!Family::begin().unwrap().lives(), "it was there before");
        assert!(before.lives());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
