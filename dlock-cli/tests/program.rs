//! The program itself, on a file of SQLite: several processes, real signals, real kills.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A store that no other test has.
struct Store(TempDir);

impl Store {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn dlock(&self, words: &[&str]) -> Command {
        let mut command = dlock(words);
        command.env("DLOCK_URL", format!("sqlite://{}/locks.db", self.0.path().display()));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.dlock(words).output().unwrap()
    }

    /// A command that holds the lock until its standard input ends. It runs already.
    fn hold(&self, words: &[&str], key: &str, script: &str) -> Holder {
        let mut command = self.dlock(&[&["run", "--ttl", "3s"], words, &[key, "sh", "-c", script]].concat());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Holder { process, output, first: line.trim().to_owned() }
    }

    fn holder_of(&self, key: &str) -> serde_json::Value {
        let shown = self.run(&["show", "--json", key]);
        serde_json::from_slice::<serde_json::Value>(&shown.stdout).unwrap()[0]["holders"][0].clone()
    }
}

struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
    first: String,
}

impl Holder {
    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Its exit code, when its standard input has ended.
    fn end(&mut self) -> i32 {
        drop(self.process.stdin.take());
        self.code()
    }

    fn code(&mut self) -> i32 {
        until(|| self.process.try_wait().unwrap().is_some());
        self.process.wait().unwrap().code().unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
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

fn dlock(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DLOCK_")) {
        command.env_remove(name);
    }
    command.args(words).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn lives(pid: &str) -> bool {
    // A zombie does nothing any more.
    std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits for what must come; the test ends with its harness if it does not.
fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it has not come");
}

const HOLD: &str = "echo $$; cat";

#[test]
fn a_command_runs_under_the_lock_and_gives_its_own_code() {
    let store = Store::new();
    let ran = store.run(&["run", "stock:<42>", "sh", "-c", "echo $DLOCK_KEY $DLOCK_TOKEN $DLOCK_RUN_PARENT; exit 7"]);
    assert_eq!(code(&ran), 7, "{}", text(&ran.stderr));
    let told = text(&ran.stdout);
    let token = told.trim().strip_prefix("stock:<42> ").unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
    // It was released.
    assert_eq!(code(&store.run(&["run", "--wait", "none", "stock:<42>", "true"])), 0);
    let permit = store.run(&["run", "--mode", "permits(3)", "pool", "sh", "-c", "echo $DLOCK_SLOT"]);
    assert_eq!(text(&permit.stdout), "0\n", "{}", text(&permit.stderr));
}

#[test]
fn a_busy_lock_has_a_code_of_its_own() {
    let store = Store::new();
    let mut holder = store.hold(&["--name", "backup"], "job", HOLD);
    let busy = store.run(&["run", "--wait", "none", "job", "echo", "never"]);
    assert_eq!((code(&busy), text(&busy.stdout)), (75, String::new()));
    let said = text(&busy.stderr);
    assert!(said.contains("backup") && said.contains("dlock show 'job'"), "{said}");
    let quiet = store.run(&["run", "--wait", "none", "--quiet", "--busy-code", "0", "job", "echo", "never"]);
    assert_eq!((code(&quiet), text(&quiet.stdout), text(&quiet.stderr)), (0, String::new(), String::new()));
    assert_eq!(code(&store.run(&["wait", "--wait", "10ms", "job"])), 75);
    let mut waiter = store.dlock(&["wait", "job"]).spawn().unwrap();
    assert_eq!(holder.end(), 0);
    assert!(waiter.wait().unwrap().success());
}

#[test]
fn one_start_in_a_period() {
    let store = Store::new();
    let start = || store.run(&["run", "--once-per", "366d", "--offset", "1d", "year", "echo", "ran"]);
    let first = start();
    assert_eq!((code(&first), text(&first.stdout)), (0, "ran\n".to_owned()), "{}", text(&first.stderr));
    assert_eq!(code(&start()), 75);
}

#[test]
fn a_lock_is_shown_listed_and_broken() {
    let store = Store::new();
    let mut holder =
        store.hold(&["--name", "nightly"], "stock:<42>", "sleep 1000 & echo $!; trap 'echo term' TERM; wait; wait");
    let grandchild = holder.first.clone();
    let shown = store.run(&["show", "stock:42"]);
    assert_eq!(code(&shown), 0);
    assert!(text(&shown.stderr).contains("stock:<42> looks like it"), "{}", text(&shown.stderr));
    let listed = store.run(&["ls", "stock:"]);
    let listed = text(&listed.stdout);
    assert!(listed.contains("stock:<42>") && listed.contains("nightly"), "{listed}");
    assert_eq!(store.run(&["ls", "--json", "none:"]).stdout, b"[]\n");
    let none = store.run(&["ls", "none:"]);
    assert!(text(&none.stderr).contains("nobody holds a lock that begins with none:"), "{}", text(&none.stderr));
    // A slip of the finger does not read as "it is free".
    for (typed, told) in [("stok:42", "'stock:<42>' is held"), ("orders", "other locks are held")] {
        let missed = store.run(&["show", typed]);
        assert_eq!((code(&missed), text(&missed.stderr).contains(told)), (1, true), "{}", text(&missed.stderr));
    }
    let seen = store.holder_of("stock:<42>");
    assert_eq!(seen["function"].as_str(), Some("nightly"));
    assert!(seen["token"].as_u64().unwrap() > 0);
    assert_eq!(seen["pid"].as_u64(), Some(u64::from(holder.process.id())));
    let hold = seen["hold"].as_str().unwrap();
    let to_paste = format!("dlock break 'stock:<42>' --hold {hold} --why");
    assert!(text(&shown.stdout).contains(&to_paste), "{}", text(&shown.stdout));

    let order =
        |hold, more: &[&str]| store.run(&[&["break", "stock:42", "--hold", hold, "--why", "it hangs"], more].concat());
    let old = order("0123456789abcdef", &["--yes"]);
    assert_eq!(code(&old), 1);
    assert!(text(&old.stderr).contains(hold), "{}", text(&old.stderr));
    // Nobody can answer here, so the risk is told before somebody writes --yes.
    let unasked = order(hold, &[]);
    assert_eq!(code(&unasked), 64);
    assert!(text(&unasked.stderr).contains("nightly") && text(&unasked.stderr).contains("Two may work"));
    let no_reason = store.run(&["break", "stock:42", "--hold", hold, "--why", "", "--yes"]);
    assert_eq!(code(&no_reason), 64);
    assert!(lives(&grandchild));
    assert_eq!(code(&order(hold, &["--yes", "--by", "alice"])), 0);
    assert_eq!(holder.end(), 76);
    assert_eq!(holder.rest(), "term\n");
    let mut said = String::new();
    holder.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("alice") && said.contains("it hangs"), "{said}");
    assert!(!lives(&grandchild), "a process of the command has outlived the lock");
    assert_eq!(code(&store.run(&["show", "stock:<42>"])), 1);
}

#[test]
fn run_says_that_a_lock_with_marks_is_another_lock() {
    let store = Store::new();
    let _held = store.hold(&[], "stock:<42>", "echo held; read line");
    for (key, other) in [("stock:42", true), ("stock:43", false), ("stock:<43>", false)] {
        let ran = store.run(&["run", key, "true"]);
        assert_eq!((code(&ran), text(&ran.stderr).contains("the lock \"stock:<42>\" is held")), (0, other), "{key}");
    }
}

#[test]
fn a_command_goes_on_without_its_lock_if_it_shall() {
    let store = Store::new();
    let mut holder = store.hold(&["--on-lost", "continue"], "job", HOLD);
    let hold = store.holder_of("job")["hold"].as_str().unwrap().to_owned();
    assert_eq!(code(&store.run(&["break", "job", "--hold", &hold, "--why", "test", "--yes"])), 0);
    let mut errors = BufReader::new(holder.process.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("the command goes on"), "{line}");
    assert!(lives(&holder.first));
    assert_eq!(holder.end(), 0);
}

#[test]
fn signals_go_to_the_command() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while read x; do :; done; wait; while :; do sleep 0.01; done");
    holder.signal(rustix::process::Signal::USR1);
    let mut line = String::new();
    holder.output.read_line(&mut line).unwrap();
    assert_eq!(line, "usr1\n");
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.end(), 5);
    // A command without a trap ends by the signal.
    let mut holder = store.hold(&[], "job", HOLD);
    // Kept open: at its end the command would end by itself.
    let _input = holder.process.stdin.take();
    // A shell keeps an INT that comes while it starts `cat` until that has ended.
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.code(), 143);
}

#[test]
fn a_signal_ends_the_wait() {
    let store = Store::new();
    let holder = store.hold(&[], "job", HOLD);
    let waiter =
        store.dlock(&["run", "--wait", "forever", "job", "echo", "never"]).stdout(Stdio::piped()).spawn().unwrap();
    until(|| store.holder_of("job")["hold"].is_string());
    let pid = rustix::process::Pid::from_child(&waiter);
    // Its handlers must stand; before that the signal itself ends it.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = waiter.wait_with_output().unwrap();
    assert!(matches!(ended.status.code(), Some(143) | None));
    assert_eq!(text(&ended.stdout), "");
    drop(holder);
}

#[cfg(target_os = "linux")]
#[test]
fn the_command_ends_with_the_program_even_if_it_is_killed() {
    let store = Store::new();
    let mut holder = store.hold(&[], "job", "sleep 1000 & echo $$ $!; wait");
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)));
    holder.process.kill().unwrap();
    // Its children too.
    until(|| !pids.iter().any(|pid| lives(pid)));
    // The ttl frees the lock.
    assert_eq!(code(&store.run(&["run", "--wait", "1m", "job", "true"])), 0);
}

/// Nobody in the stopped program could end the command.
#[cfg(target_os = "linux")]
#[test]
fn the_command_ends_with_its_lock_while_the_program_is_stopped() {
    let store = Store::new();
    let script = "sleep 1000 & echo $$ $!; trap '' TERM; while :; do wait; done";
    let mut holder = store.hold(&["--grace", "50ms"], "job", script);
    let pids: Vec<_> = holder.first.split(' ').map(str::to_owned).collect();
    holder.signal(rustix::process::Signal::STOP);
    until(|| !pids.iter().any(|pid| lives(pid)));
    assert_eq!(code(&store.run(&["run", "--wait", "1m", "job", "true"])), 0);
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.code(), 76);
}

/// The supervisor must not end a command whose lock goes on, nor one that may go on without it.
#[cfg(target_os = "linux")]
#[test]
fn a_renewed_lock_and_a_command_that_may_go_on_have_no_deadline() {
    let store = Store::new();
    let longer_than_the_ttl = ["sh", "-c", "sleep 1.5; echo done"];
    let run = |words: &[&str]| store.run(&[&["run", "--ttl", "1s"], words, &["job"], &longer_than_the_ttl].concat());
    assert_eq!(text(&run(&[]).stdout), "done\n");
    let mut holder = store.hold(&["--on-lost", "continue"], "other", "echo $$; sleep 4; echo done");
    holder.signal(rustix::process::Signal::STOP);
    // Not to its end: the stopped program has it open.
    let mut line = String::new();
    holder.output.read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let store = Store::new();
    let ended = store.run(&[
        "run",
        "--timeout",
        "50ms",
        "--grace",
        "50ms",
        "job",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 0.01; done",
    ]);
    assert_eq!(code(&ended), 124);
    assert_eq!(code(&store.run(&["run", "--wait", "none", "job", "true"])), 0);
}

#[test]
fn each_way_to_fail_has_its_code() {
    let store = Store::new();
    for (words, expected) in [
        (&["run", "job", "/nowhere/at/all"][..], 127),
        (&["run", "job", "/"], 126),
        (&["run", "--ttl", "30", "job", "true"], 64),
        (&["run", "job"], 64),
        (&["fly"], 64),
        (&["break", "job", "--hold", "7", "--why", "x"], 64),
        (&["run", "--once-per", "1m", "--mode", "read", "job", "true"], 64),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let ended = store.run(words);
        assert_eq!(code(&ended), expected, "{words:?}: {}", text(&ended.stderr));
    }
    let closed = dlock(&["--url", "redis://127.0.0.1:1/", "run", "--retry", "false", "job", "true"]).output().unwrap();
    assert_eq!(code(&closed), 69, "{}", text(&closed.stderr));
    let settable =
        dlock(&["--url", "redis://127.0.0.1:1/", "run", "--outage-code", "3", "job", "true"]).output().unwrap();
    assert_eq!(code(&settable), 3, "{}", text(&settable.stderr));
    let which = dlock(&["ls"]).output().unwrap();
    assert!(code(&which) == 64 && text(&which.stderr).contains("DLOCK_URL"), "{}", text(&which.stderr));
}

#[test]
fn a_password_is_refused_on_the_command_line_and_never_shown() {
    let url = "redis://:hunter2@127.0.0.1:1/";
    let refused = dlock(&["--url", url, "ls"]).output().unwrap();
    assert_eq!(code(&refused), 64);
    let from_file = {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{url}").unwrap();
        dlock(&["--url-file", file.path().to_str().unwrap(), "ls"]).output().unwrap()
    };
    assert_eq!(code(&from_file), 69, "{}", text(&from_file.stderr));
    let from_variable = dlock(&["-v", "ls"]).env("DLOCK_URL", url).output().unwrap();
    for output in [refused, from_file, from_variable] {
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_store_of_the_services_variables_is_taken() {
    let folder = TempDir::new().unwrap();
    let url = |name| format!("sqlite://{}/{name}.db", folder.path().display());
    let two = |words: &[&str]| {
        let mut command = dlock(words);
        command.env("DLOCK_URL_ONE", url("one")).env("DLOCK_URL_TWO", url("two")).output().unwrap()
    };
    let which = two(&["ls"]);
    assert!(code(&which) == 64 && text(&which.stderr).contains("one, two"), "{}", text(&which.stderr));
    assert_eq!(code(&two(&["ls", "--backend", "two"])), 0);
    assert_eq!(code(&two(&["ls", "--backend", "three"])), 64);
}

#[test]
fn a_doctor_tells_what_a_store_promises() {
    let store = Store::new();
    let told = store.run(&["doctor", "--rounds", "3", "--json"]);
    let report: serde_json::Value =
        serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{}", text(&told.stderr)));
    assert_eq!(report["kind"].as_str(), Some("sqlite"));
    assert!(report["cycle_p99_ms"].as_f64().unwrap() > 0.0);
    // The file is read by the clock of this host.
    assert_eq!(report["clock_difference_ms"].as_i64(), Some(0));
    let told = store.run(&["doctor", "--rounds", "1"]);
    assert!(text(&told.stdout).contains("NO failover"), "{}", text(&told.stdout));
    // It leaves no lock behind.
    assert_eq!(store.run(&["ls", "--json"]).stdout, b"[]\n");
}

#[test]
fn a_leader_is_named() {
    let store = Store::new();
    assert_eq!(code(&store.run(&["leaders", "indexer"])), 1);
    let _leader = store.hold(&["--name", "node-1"], "indexer", HOLD);
    let told = store.run(&["leaders", "indexer"]);
    assert!(code(&told) == 0 && text(&told.stdout).contains("node-1"), "{}", text(&told.stdout));
}

#[test]
fn sites_are_told_from_what_a_program_has_printed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, r#"[{{"name":"shop::deduct","keys":["stock:<id>"],"backend":"main","place":"src/a.rs:7","settings":{{"ttl":"30s"}}}}]"#).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let told = dlock(&["sites", &path]).output().unwrap();
    assert!(
        text(&told.stdout).contains("stock:<id>") && text(&told.stdout).contains("ttl=30s"),
        "{}",
        text(&told.stdout)
    );
    write!(file, "x").unwrap();
    assert_eq!(code(&dlock(&["sites", &path]).output().unwrap()), 64);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let store = Store::new();
    let _holder = store.hold(&[], "job", HOLD);
    let mut listing = store.dlock(&["ls"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(listing.stdout.take());
    let ended = listing.wait_with_output().unwrap();
    assert_eq!((code(&ended), text(&ended.stderr)), (0, String::new()));
}

#[test]
fn completions_and_man_pages_are_written() {
    assert!(text(&dlock(&["completions", "bash"]).output().unwrap().stdout).contains("_dlock"));
    let folder = TempDir::new().unwrap();
    assert_eq!(code(&dlock(&["man", folder.path().to_str().unwrap()]).output().unwrap()), 0);
    assert!(folder.path().join("dlock-run.1").exists());
}
