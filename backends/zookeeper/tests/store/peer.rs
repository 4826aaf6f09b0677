//! Another tool's client, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dlock::{Key, LockKey};

use crate::kit::shared;

/// A program that takes and frees a lock at orders.
pub(crate) struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// The real kazoo. `extra` is a pattern of other tools' nodes that it waits for.
    pub(crate) fn kazoo(path: &str, extra: &str) -> Self {
        // Debian's, for which `cargo xtask servers` installs kazoo.
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", include_str!("kazoo.py"), &hosts(), path, extra]);
        Self::start(command)
    }

    /// The real Curator.
    pub(crate) fn curator(path: &str) -> Self {
        const JARS: [&str; 7] = [
            "curator-recipes",
            "curator-framework",
            "curator-client",
            "zookeeper",
            "zookeeper-jute",
            "guava",
            "slf4j-nop",
        ];
        let classes = JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":");
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &classes]);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/Curator.java")).args([&hosts(), path]);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run `cargo xtask servers`");
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, orders, answers: BufReader::new(answers) }
    }

    pub(crate) fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn end(&mut self) -> bool {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        match answer.trim_end() {
            "yes" => true,
            "no" => false,
            other => panic!("the other tool answered {other:?}; `cargo xtask servers` installs it"),
        }
    }

    pub(crate) fn does(&mut self, order: &str) -> bool {
        self.begin(order);
        self.end()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn hosts() -> String {
    shared().replace("zk://", "")
}

/// A path that no other test uses, and the key that has it literally.
pub(crate) fn place() -> (String, LockKey) {
    let name = format!("n{}", fastrand::u64(..));
    (format!("/others/{name}"), LockKey::new("t", Key::text("/others/").value(&name)).unwrap())
}
