//! Another tool's client, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program that uses another tool's lock at orders. Each order is a line on its standard input, and it answers each by a line
/// that says `yes` or `no`. It ends when this is dropped, and then releases nothing.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the program.
    ///
    /// # Panics
    /// If it is not installed.
    pub fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().expect("a program is missing: run `cargo xtask servers`");
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, orders, answers: BufReader::new(answers) }
    }

    /// Sends an order, and does not wait for it.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Waits for the answer to an order.
    ///
    /// # Panics
    /// If the answer is neither `yes` nor `no`, as when the tool's library is missing.
    pub fn end(&mut self) -> bool {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "yes" => true,
            "no" => false,
            other => panic!("the other tool answered {other:?}; `cargo xtask servers` installs it"),
        }
    }

    /// Sends an order, and waits for its answer.
    ///
    /// # Panics
    /// As `begin` and `end`.
    pub fn does(&mut self, order: &str) -> bool {
        self.begin(order);
        self.end()
    }

    /// Kills the program. It never releases its locks.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
