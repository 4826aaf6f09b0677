//! Running programs.

use std::env;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The result of every task. The text of an error is for the person at the terminal.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The workspace's folder, wherever the task was called from.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Runs to the end with the terminal's own streams.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.stdin(Stdio::null()).status().map_err(|error| not_run(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", text(command)).into()) }
}

/// The starts of the names of the variables in which cargo describes the package of a program.
const OF_THIS_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The cargo that runs this task, with its own choice of toolchain.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments);
    // Cargo sets them for this program. Build scripts look at them, such as that of `ring`. They would run again each time that a
    // plain cargo comes between, and half of the crates would be built again.
    for (name, _) in env::vars_os() {
        if OF_THIS_PACKAGE.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs silently and returns what it printed; a failure shows everything.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_run(command, &error))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} ended with {}\n{stdout}{stderr}", text(command), output.status).into())
}

/// The command as one would type it.
pub(crate) fn text(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Why a program that was not found gave no output.
pub(crate) fn not_run(command: &Command, error: &io::Error) -> String {
    format!("{} cannot be run: {error}", command.get_program().display())
}
