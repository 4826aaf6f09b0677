//! Starting processes that cannot outlive us.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

use crate::find::find_program;
use crate::nobody;

/// Starts `command` so that the kernel kills it when this process ends, however it ends.
///
/// It reads nothing; its output goes where the caller says.
/// Without `setpriv` (not Linux) the process is started all the same, and only `Drop` ends it.
pub(crate) fn spawn(command: Command, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    start(tied(command), stdout, stderr)
}

/// The same as `nobody`, if this process is root.
pub(crate) fn spawn_as_nobody(command: Command, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    // Before `setpriv`: a change of the user takes the signal back.
    let mut command = tied(command);
    nobody::run_as(&mut command);
    start(command, stdout, stderr)
}

fn start(mut command: Command, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
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
    tied.args(["--pdeathsig", "KILL", "--"]);
    behind(tied, &command)
}

/// The first command with the second one as its last arguments, in its folder and with its environment.
pub(crate) fn behind(mut first: Command, command: &Command) -> Command {
    first.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        first.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first
}

fn gone() -> io::Error {
    io::Error::other("the spawning thread is gone")
}
