//! The processes that a server starts: they stop, go on and end with it. Only PostgreSQL has any.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};

/// Stops a process and its children, and returns them once all stand still.
pub(crate) fn stop(process: &Child) -> io::Result<Vec<u32>> {
    kill_process(Pid::from_child(process), Signal::STOP)?;
    wait_until_stopped(process.id());
    // Not earlier: now it starts no more, and keeps the numbers of those that end.
    let children = children_of(process.id());
    signal_all(&children, Signal::STOP);
    children.iter().copied().for_each(wait_until_stopped);
    Ok(children)
}

/// Lets both go on after [`stop`].
pub(crate) fn resume(process: &Child) -> io::Result<()> {
    signal_all(&children_of(process.id()), Signal::CONT);
    Ok(kill_process(Pid::from_child(process), Signal::CONT)?)
}

/// Where the kernel does not show them, there are none.
fn children_of(pid: u32) -> Vec<u32> {
    let lists = threads(pid).filter_map(|thread| fs::read_to_string(format!("{thread}/children")).ok());
    let children = lists.flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>());
    children.filter_map(Result::ok).collect()
}

/// Sends a signal to each.
pub(crate) fn signal_all(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        // One that has ended needs none.
        let _ = kill_process(pid, signal);
    }
}

/// Returns once every thread of the process stands still. The signal alone says nothing: a thread on another core runs
/// on for a moment, long enough for a server to answer one more request.
pub(crate) fn wait_until_stopped(pid: u32) {
    wait(|| is_stopped(pid));
}

/// Returns once none of them runs any more. Those that nobody has asked how they ended are gone too.
pub(crate) fn wait_until_gone(pids: &[u32]) {
    wait(|| !pids.iter().copied().any(is_running));
}

/// False for one that has ended, also before anybody has asked how.
pub(crate) fn is_running(pid: u32) -> bool {
    threads(pid).any(|thread| !is_in_state(&thread, &['Z', 'X']))
}

/// Where the kernel does not show its threads, the process is believed to have stopped.
pub(crate) fn is_stopped(pid: u32) -> bool {
    threads(pid).all(|thread| is_in_state(&thread, &['T', 'Z', 'X']))
}

fn wait(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn threads(pid: u32) -> impl Iterator<Item = String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().map(|thread| thread.path().display().to_string())
}

fn is_in_state(thread: &str, states: &[char]) -> bool {
    let stat = fs::read_to_string(format!("{thread}/stat")).unwrap_or_default();
    // The state is the letter behind the name, which stands in brackets and may hold anything.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(states))
}
