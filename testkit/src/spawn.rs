//! Starting processes that cannot outlive us.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::find::find_program;

/// Starts `command` so that the kernel kills it when this process ends, however it ends.
///
/// It reads nothing; its output goes where the caller says.
/// Without `setpriv` (not Linux) the process is started all the same, and only `Drop` ends it.
pub(crate) fn spawn(command: Command, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    let mut command = tied(command);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let (reply, answer) = mpsc::channel();
    spawner().send(Order { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

struct Order {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// The parent-death signal fires when the *thread* that spawned ends, and a test's thread ends with its test.
/// So one thread that never ends spawns for all.
fn spawner() -> &'static mpsc::Sender<Order> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for Order { mut command, reply } in inbox {
                // A caller that is gone leaves an orphan behind; it ends with this process.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    })
}

/// The same command behind `setpriv`, which sets the signal and then becomes the command: the pid stays the same.
fn tied(command: Command) -> Command {
    static SETPRIV: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(setpriv) = SETPRIV.get_or_init(|| find_program("setpriv")) else {
        return command;
    };
    let mut tied = Command::new(setpriv);
    tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    tied
}

fn gone() -> io::Error {
    io::Error::other("the spawning thread is gone")
}

/// Returns once every thread of the process stands still. The signal alone says nothing: a thread on another core runs
/// on for a moment, long enough for a server to answer one more request.
pub(crate) fn wait_until_stopped(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && !is_stopped(pid) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Where the kernel does not show its threads, the process is believed to have stopped.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state is the letter behind the name, which stands in brackets and may hold anything.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
