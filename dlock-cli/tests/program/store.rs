//! Runs the program on a file of SQLite, and holds locks with it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A store that no other test has.
pub(crate) struct Store(TempDir);

impl Store {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        // Only `run` makes it, and some tests begin with another command.
        std::fs::File::create(folder.path().join("locks.db")).unwrap();
        Self(folder)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}/locks.db", self.0.path().display())
    }

    pub(crate) fn dlock(&self, words: &[&str]) -> Command {
        let mut command = dlock(words);
        command.env("DLOCK_URL", self.url());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.dlock(words).output().unwrap()
    }

    /// A command that holds the lock until its standard input ends. It runs already, and hears of a break within a second.
    pub(crate) fn hold(&self, words: &[&str], key: &str, script: &str) -> Holder {
        self.hold_for("1m", &[&["--renew", "1s"], words].concat(), key, script)
    }

    /// The same with a lease that ends soon if it is not renewed.
    pub(crate) fn hold_briefly(&self, words: &[&str], key: &str, script: &str) -> Holder {
        self.hold_for("3s", words, key, script)
    }

    pub(crate) fn hold_for(&self, ttl: &str, words: &[&str], key: &str, script: &str) -> Holder {
        let mut command = self.dlock(&[&["run", "--ttl", ttl], words, &[key, "sh", "-c", script]].concat());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Holder { process, output, first: line.trim().to_owned() }
    }

    pub(crate) fn holder_of(&self, key: &str) -> serde_json::Value {
        let shown = self.run(&["show", "--json", key]);
        serde_json::from_slice::<serde_json::Value>(&shown.stdout).unwrap()[0]["holders"][0].clone()
    }
}

pub(crate) struct Holder {
    pub(crate) process: Child,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) first: String,
}

impl Holder {
    /// A program whose output nobody reads.
    pub(crate) fn of(mut process: Child) -> Self {
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, first: String::new() }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Its exit code, when its standard input has ended.
    pub(crate) fn end(&mut self) -> i32 {
        drop(self.process.stdin.take());
        self.code()
    }

    pub(crate) fn code(&mut self) -> i32 {
        self.end_code().unwrap()
    }

    /// None if a signal has ended it.
    pub(crate) fn end_code(&mut self) -> Option<i32> {
        until(|| self.process.try_wait().unwrap().is_some());
        self.process.wait().unwrap().code()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn dlock(words: &[&str]) -> Command {
    // Without a terminal, also if the tests have one. It becomes the program, under the same process id.
    let mut command = Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_dlock"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DLOCK_")) {
        command.env_remove(name);
    }
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn lives(pid: &str) -> bool {
    // A zombie does nothing any more.
    state(pid).is_some_and(|state| state != 'Z')
}

/// The letter of the kernel for what a process does.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits for what must come; the test ends with its harness if it does not.
pub(crate) fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it has not come");
}

pub(crate) const HOLD: &str = "echo $$; cat";
