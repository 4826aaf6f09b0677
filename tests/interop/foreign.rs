//! A program that locks by another library, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use dlock_testkit::servers::Tree;

/// A program that prints `up`, begins at a line on its input, and prints `seen <holds> <failures>` at its end.
pub(crate) struct Foreign {
    process: Child,
    answers: BufReader<ChildStdout>,
}

/// How often its tasks had the lock, and how often one of them gave up.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) holds: u64,
    pub(crate) failures: u64,
}

impl Foreign {
    /// Starts it, and lets it begin.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut up = String::new();
        answers.read_line(&mut up).unwrap();
        assert_eq!(up, "up\n", "it did not start: {command:?}");
        writeln!(process.stdin.take().unwrap()).unwrap();
        Self { process, answers }
    }

    /// Whether its tasks still run.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// Waits until its tasks have ended.
    pub(crate) fn seen(mut self) -> Seen {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("seen"), "it failed; its error is above");
        let mut number = || words.next().unwrap().parse().unwrap();
        Seen { holds: number(), failures: number() }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The client that `cargo xtask interop` has built. Without it, the test fails.
pub(crate) fn built(name: &str) -> Tree {
    let tree = Tree::named(name);
    assert!(tree.version().is_some(), "{name} is not there: `cargo xtask interop` builds it and runs this test");
    tree
}
