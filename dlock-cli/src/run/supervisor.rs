//! The process between `dlock run` and its command, on Linux.
//!
//! `dlock run` may be killed, or stopped for longer than the lock lasts. Then nobody else would end the command. The supervisor
//! ends the command and [what it has started](super::family) when `dlock run` dies, and when the lock's deadline passes.
//!
//! `dlock run` writes the deadline into a file in memory, and moves it with each renewal. A deadline of zero asks for the end.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};
use rustix::thread::set_name;
use rustix::time::{ClockId, clock_gettime};

use super::family::{Family, own_group, shown_parent};
use super::signals::Signals;
use super::starter::{Ended, cannot_execute, starter};
use crate::exit::{Exit, Failure};

/// Set for the supervisor: the process id of its parent, the descriptor of the deadline there, and the grace in milliseconds.
const SUPERVISOR: &str = "DLOCK_RUN_SUPERVISOR";

/// The number of the signal KILL.
const KILL: i32 = 9;

/// How often a deadline is read that is half-written.
const MOST_READS: u32 = 10_000;

/// For how long after the start of the command the supervisor looks for signals that came before it.
const EARLY: Duration = Duration::from_millis(1);

/// The pause between two looks for what a command that has ended has left behind.
const REST_POLL_PAUSE: Duration = Duration::from_millis(50);

/// The supervisor reads the clock again after this time. While the host sleeps, the timer's clock stands still, but the
/// deadline's clock goes on.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// The moment at which the command must end. It is in a file in memory that both processes have open.
#[derive(Debug)]
pub(super) struct Deadline(File);

impl Deadline {
    /// A deadline after this time, or none.
    pub(super) fn new(left: Option<Duration>) -> Result<Self, Failure> {
        let file = memfd_create("dlock-deadline", MemfdFlags::CLOEXEC).map(File::from);
        let deadline = Self(file.map_err(|error| Failure::new(Exit::INTERNAL, format!("a file in memory: {error}")))?);
        match left {
            Some(left) => deadline.set(|| left)?,
            None => deadline.write(u64::MAX)?,
        }
        Ok(deadline)
    }

    /// Moves the deadline to the end of the time that is left. It reads the clock before it calls `left`. So a pause in
    /// between makes the deadline earlier, and never later.
    pub(super) fn set(&self, left: impl FnOnce() -> Duration) -> Result<(), Failure> {
        let now = now_ms();
        self.write(now.saturating_add(u64::try_from(left().as_millis()).unwrap_or(u64::MAX)))
    }

    /// Asks for the end of the command now.
    pub(super) fn pass(&self) -> Result<(), Failure> {
        self.write(0)
    }

    /// The variable for the supervisor.
    pub(super) fn variable(&self, grace: Duration) -> (&'static str, String) {
        (SUPERVISOR, format!("{}:{}:{}", std::process::id(), self.0.as_raw_fd(), grace.as_millis()))
    }

    fn write(&self, at_ms: u64) -> Result<(), Failure> {
        // Written twice, once inverted, so that a half-written value is seen.
        let text = [at_ms.to_le_bytes(), (!at_ms).to_le_bytes()].concat();
        self.0
            .write_all_at(&text, 0)
            .map_err(|error| Failure::new(Exit::INTERNAL, format!("the deadline of the command: {error}")))
    }

    fn left(&self) -> Duration {
        let mut text = [[0; 8]; 2];
        // The file is written in a moment.
        for _ in 0..MOST_READS {
            if self.0.read_exact_at(text.as_flattened_mut(), 0).is_err() {
                break;
            }
            let [at_ms, check] = text.map(u64::from_le_bytes);
            if at_ms == !check {
                return Duration::from_millis(at_ms.saturating_sub(now_ms()));
            }
        }
        // Without a deadline nobody would end the command.
        Duration::ZERO
    }
}

/// Milliseconds since the host has started, sleep included.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
}

/// In the supervisor, follows the command to its end. In the program itself, does nothing.
pub(crate) fn supervise() -> Option<Result<Exit, Failure>> {
    let words = std::env::var(SUPERVISOR).ok()?;
    let numbers: Vec<u64> = words.split(':').map_while(|word| word.parse().ok()).collect();
    let &[parent, descriptor, grace] = &numbers[..] else {
        return Some(Err(Failure::usage(format!("{SUPERVISOR} is meant for `dlock run` alone"))));
    };
    let command: Vec<_> = std::env::args_os().skip(1).collect();
    // `killall dlock` is meant for the program.
    let _ = set_name(c"supervisor");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let file = shown_parent().ok_or_else(|| std::io::ErrorKind::NotFound.into());
    let file = file.and_then(|parent| File::open(format!("/proc/{parent}/fd/{descriptor}")));
    let followed = match (runtime, file) {
        (Ok(runtime), Ok(deadline)) => {
            let grace = Duration::from_millis(grace);
            runtime.block_on(follow(parent, &Deadline(deadline), grace, &command))
        }
        (Err(error), _) | (_, Err(error)) => Err(Failure::new(Exit::INTERNAL, format!("the supervisor: {error}"))),
    };
    Some(followed)
}

async fn follow(parent: u64, deadline: &Deadline, grace: Duration, command: &[OsString]) -> Result<Exit, Failure> {
    // A signal to the group is for the command. Here it must not end or stop anything.
    let mut signals = Signals::new()?;
    signals.and_steering()?;
    let internal = |of: &str, error| Failure::new(Exit::INTERNAL, format!("{of}: {error}"));
    let family =
        Family::begin().map_err(|error| internal("the kernel cannot keep the command's orphans", error.into()))?;
    // Without a terminal this process leads a group. A signal to a group reaches also a process that is just being started.
    let group = Some(getpid()).filter(|own| own_group() == Some(own.as_raw_pid()));
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| internal("the kernel cannot tell the end of dlock", error.into()))?;
    let is_orphan = || getppid().map(Pid::as_raw_nonzero).is_none_or(|now| u64::try_from(now.get()) != Ok(parent));
    if is_orphan() {
        return Ok(Exit::of_signal(KILL));
    }
    let mut process = starter(command)?;
    let child = process.env_remove(SUPERVISOR).kill_on_drop(true).spawn();
    let mut child = child.map_err(|error| cannot_execute(command.first(), &error))?;
    // A signal that came before the command was there has reached nobody.
    while let Ok(number) = tokio::time::timeout(EARLY, signals.next()).await {
        let command = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let _ = command.zip(Signal::from_named_raw(number)).map(|(command, signal)| kill_process(command, signal));
    }
    let (mut ended, mut end) = (None, None);
    loop {
        let left = match end {
            None => deadline.left(),
            Some(end) => tokio::time::Instant::duration_since(&end, tokio::time::Instant::now()),
        };
        let longest_sleep = if ended.is_some() { REST_POLL_PAUSE } else { LONGEST_SLEEP };
        tokio::select! {
            now = child.wait(), if ended.is_none() => ended = Some(now),
            _ = signals.next() => {}
            () = tokio::time::sleep(left.min(longest_sleep)) => {}
        }
        family.bury_orphans(child.id());
        // A process that the command has left behind works under the lock too.
        if ended.is_some() && !family.lives() {
            break;
        }
        match end {
            _ if is_orphan() => break,
            None if deadline.left().is_zero() => {
                // A process that was stopped must go on to end.
                for signal in [Signal::TERM, Signal::CONT] {
                    family.signal(signal, group.map(Pid::as_raw_pid));
                    let _ = group.map(|group| kill_process_group(group, signal));
                }
                end = Some(tokio::time::Instant::now() + grace);
            }
            Some(end) if end <= tokio::time::Instant::now() => break,
            _ => {}
        }
    }
    let _ = child.start_kill();
    family.kill(&mut child).await;
    match ended {
        Some(ended) => ended.map(|ended| Ended(ended).exit()).map_err(|error| internal("the command", error)),
        None => Ok(Exit::of_signal(KILL)),
    }
}
