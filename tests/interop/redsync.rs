//! Real redsync in a process of its own. `cargo xtask interop` builds it, for which it needs Go.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use dlock_testkit::servers::Tree;

/// Eight tasks of redsync's that want one name, with redsync's defaults.
pub(crate) struct Redsync {
    process: Child,
    answers: BufReader<ChildStdout>,
}

/// How often these tasks had the lock, and how often one of them gave up.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) holds: u64,
    pub(crate) failures: u64,
}

impl Redsync {
    /// The tasks begin at once. Each hold counts up `counter` at the first server, by a read and a write.
    pub(crate) fn start(urls: &str, name: &str, counter: &str, seconds: u32) -> Self {
        let tree = Tree::named("redsync");
        assert!(tree.version().is_some(), "redsync is not there: `cargo xtask interop` builds it and runs this test");
        let mut command = Command::new(tree.root().join("redsync"));
        command.args(["-urls", urls, "-name", name, "-counter", counter, "-for", &format!("{seconds}s")]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut up = String::new();
        answers.read_line(&mut up).unwrap();
        assert_eq!(up, "up\n", "redsync did not start");
        writeln!(process.stdin.take().unwrap()).unwrap();
        Self { process, answers }
    }

    /// Waits until the tasks have ended.
    pub(crate) fn seen(mut self) -> Seen {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("seen"), "redsync failed; its error is above");
        let mut number = || words.next().unwrap().parse().unwrap();
        Seen { holds: number(), failures: number() }
    }
}

impl Drop for Redsync {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
