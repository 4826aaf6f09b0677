//! redis-py's lock, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Debian's, for which `cargo xtask servers` installs redis-py.
const PYTHON: &str = "/usr/bin/python3";

/// A program that uses redis-py.
pub(crate) struct Python {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Python {
    pub(crate) fn start(url: &str) -> Self {
        let mut command = Command::new(PYTHON);
        command.args(["-c", include_str!("client.py"), url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 is missing: run `cargo xtask servers`");
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, orders, answers: BufReader::new(answers) }
    }

    /// Sends a command, and does not wait for it.
    pub(crate) fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Waits for the end of the command. Returns whether it succeeded.
    pub(crate) fn end(&mut self) -> bool {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "yes" => true,
            "no" => false,
            other => panic!("redis-py answered {other:?}; `cargo xtask servers` installs it"),
        }
    }

    pub(crate) fn does(&mut self, order: &str) -> bool {
        self.begin(order);
        self.end()
    }

    /// Kills the process. It never releases its locks.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
