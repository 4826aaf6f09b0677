//! All tests once, against one set of servers: several test targets beside each other.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use dlock_testkit::servers::SharedSet;
use serde_json::Value;

use crate::failures::{self, Failure, Failures};
use crate::log::Log;
use crate::matrix::Passed;
use crate::sh::{Result, cargo, read, root};
use crate::workspace::{ALL, ETCD, FACADE, THOROUGH};

/// The number of targets that run at once. Each waits more than it works.
const AT_ONCE: usize = 4;

/// The targets that run longest, in this order, and how many tests of each run at once. They start first, since a long target
/// that starts last ends last. On two cores the harness would run two tests at a time. With many more, tests whose servers are
/// late fail.
const LONG: [(&str, &str); 8] = [
    ("process", "4"),
    // It waits for limits nearly all of its time.
    ("bad_replies", OTHERS),
    ("ui", "2"),
    ("store", "3"),
    ("conformance", "5"),
    ("faulty_backends", OTHERS),
    ("examples", OTHERS),
    ("servers", OTHERS),
];

/// How many tests of any other target run at once.
const OTHERS: &str = "2";

/// The most tests that are run again because a busy machine made them late. On one whose programs waited for up to 5 s there were
/// eight; many more are no accident.
const MOST_AGAIN: usize = 20;

/// How a run of all tests ended.
#[derive(Default)]
pub(crate) struct Verdict {
    /// The failures of each failed target, by its name.
    pub(crate) failed: Vec<(String, Failures)>,
    /// The tests that failed because the machine was late, and passed alone.
    pub(crate) passed_alone: Vec<Failure>,
}

impl Verdict {
    /// An error with all that failed.
    pub(crate) fn into_result(self) -> Result {
        if self.failed.is_empty() { Ok(()) } else { Err(self.to_string().into()) }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.failed.iter().map(|(name, failures)| format!("{name} {failures}")).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// One process of the run: a test target, or cargo for many short targets.
struct Target {
    /// As in `dlock-redis store`.
    name: String,
    /// The program and the folder of its package. Cargo needs neither.
    program: Option<(PathBuf, PathBuf)>,
    cargo: &'static [&'static str],
    at_once: &'static str,
}

impl Target {
    fn command(&self, set: &SharedSet, filter: &[&str], all: bool) -> Command {
        let mut command = match &self.program {
            Some((program, folder)) => {
                let mut command = Command::new(program);
                command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
                command
            }
            None => {
                let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD]);
                command.args(self.cargo).arg("--");
                command
            }
        };
        command.args(filter).envs(set.env());
        if all {
            command.env(ALL, "1");
        } else {
            command.args(["--skip", THOROUGH]);
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", self.at_once);
        }
        command
    }
}

/// The result of a target.
struct Ran<'a> {
    target: &'a Target,
    failed: Option<Failures>,
    passed: Passed,
    /// How many tests it left to `--all`.
    left: usize,
}

/// Runs all targets, several at once. The lines of each come in one piece, when it has ended.
pub(crate) fn side_by_side(set: &SharedSet, filter: &[&str], all: bool, log: &Log) -> Result<Verdict> {
    let targets = targets()?;
    let queue = Mutex::new(targets.iter().collect::<VecDeque<_>>());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let started = Instant::now();
    let run = |target: &Target| {
        let from = started.elapsed().as_secs_f64();
        let mut command = target.command(set, filter, all);
        log.takes_errors_of(&mut command)?;
        let (mut lines, mut passed, mut left) = (String::new(), Passed::default(), 0);
        let failed = failures::run(&mut command, |line| {
            lines.extend([line, "\n"]);
            passed.add(&target.name, line);
            left += filtered_out(line);
        });
        let to = started.elapsed().as_secs_f64();
        log.line(&format!("\n=== {}: {:.0} s, from {from:.0} s to {to:.0} s\n{lines}", target.name, to - from));
        Ok::<_, Box<dyn std::error::Error>>((failed?, passed, left))
    };
    let work = || {
        let mut ran: Vec<Ran<'_>> = Vec::new();
        while let Some(target) = next() {
            let (failed, passed, left) = run(target).map_err(|error| format!("{}: {error}", target.name))?;
            ran.push(Ran { target, failed, passed, left });
        }
        Ok::<_, String>(ran)
    };
    let ran = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?);
        ends.collect::<std::result::Result<Vec<_>, String>>()
    })?;
    let ran: Vec<_> = ran.into_iter().flatten().collect();
    let left: usize = ran.iter().map(|ran| ran.left).sum();
    if filter.is_empty() {
        log.line(&left_out(all, left)?);
    }
    let (mut failed, mut passed) = (Vec::new(), Passed::default());
    for of_target in ran {
        passed.join(of_target.passed);
        failed.extend(of_target.failed.map(|failures| (of_target.target, failures)));
    }
    let count: usize = failed.iter().map(|(_, failures)| failures.tests.len()).sum();
    let again = count <= MOST_AGAIN;
    let mut verdict = Verdict::default();
    for (target, failures) in failed {
        let mut passes = again && failures.is_late();
        for test in failures.tests.iter().take_while(|_| again && failures.is_late()) {
            let mut alone = target.command(set, &["--exact", &test.name], all);
            log.takes_errors_of(&mut alone)?;
            passes &= passes_alone(test, alone, log);
        }
        if passes {
            verdict.passed_alone.extend(failures.tests);
        } else {
            verdict.failed.push((target.name.clone(), failures));
        }
    }
    // Of a run that failed the matrix would know a part alone.
    if filter.is_empty() && verdict.failed.is_empty() {
        passed.keep()?;
    }
    Ok(verdict)
}

/// Whether a test for which the machine was late beside all the others passes alone. Nothing else is run again,
/// since a promise that is broken once is broken.
fn passes_alone(test: &Failure, mut alone: Command, log: &Log) -> bool {
    let (mut passed, mut lines) = (0, String::new());
    let run = failures::run(&mut alone, |line| {
        passed += usize::from(line.starts_with("test result: ok. 1 passed"));
        lines.extend([line, "\n"]);
    });
    let passes = matches!(run, Ok(None)) && passed > 0;
    let then = if passes { String::from("passed") } else { format!("failed too:\n{lines}") };
    log.line(&format!("The machine was late beside the other tests:\n{test}\nAlone, the test {then}"));
    passes
}

/// How many tests did not run because they were not asked for, by the last line of a target.
fn filtered_out(line: &str) -> usize {
    let before = line.strip_prefix("test result: ").and_then(|line| line.split_once(" filtered out"));
    before.and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Says how many tests did not run. With `--all` none may be left.
fn left_out(all: bool, left: usize) -> std::result::Result<String, String> {
    match (all, left) {
        (true, 1..) => Err(format!("{left} tests did not run, and `--all` is to run all of them")),
        _ => Ok(format!("\n{left} tests are left to `cargo xtask test --all`.\n")),
    }
}

/// All that `cargo test` runs. What a program of its own runs is built already.
fn targets() -> Result<Vec<Target>> {
    let mut build = cargo(&["test", "--workspace", "--features", ETCD, "--no-run", "--message-format", "json"]);
    let built = read(&mut build)?;
    let messages = built.lines().map(serde_json::from_str).collect::<std::result::Result<Vec<Value>, _>>()?;
    built_once(&messages)?;
    let mut targets: Vec<_> = messages.iter().filter_map(target).collect();
    let place = |target: &Target| LONG.iter().position(|(name, _)| target.name.ends_with(&format!(" {name}")));
    targets.sort_by_key(|target| place(target).unwrap_or(LONG.len()));
    for (name, cargo) in [("the unit tests", &["--lib", "--bins"] as &[_]), ("the examples of the docs", &["--doc"])] {
        targets.push(Target { name: name.to_owned(), program: None, cargo, at_once: OTHERS });
    }
    Ok(targets)
}

/// The crate below all stores. If it is built twice, so are they, and often tokio too: a cold build takes a tenth longer.
const BUILT_ONCE: &str = "dlock_store";

/// Fails if all stores are built twice.
fn built_once(messages: &[Value]) -> std::result::Result<(), String> {
    let is_build = |message: &&Value| message["target"]["name"] == BUILT_ONCE && message["profile"]["test"] == false;
    match messages.iter().filter(is_build).count() {
        0 | 1 => Ok(()),
        builds => Err(format!(
            "`{BUILT_ONCE}` and all stores are built {builds} times: for the host, where the tests of dlock-macros run, some crate has other \
             features than elsewhere; name them in dlock-macros/Cargo.toml, as is done for `mio` there"
        )),
    }
}

/// The test target that a message of cargo tells of. Unit tests are none.
fn target(message: &Value) -> Option<Target> {
    let is_test = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let name = message["target"]["name"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = if folder == root() { FACADE.into() } else { folder.file_name()?.to_string_lossy() };
    let at_once = LONG.iter().find(|(long, _)| *long == name).map_or(OTHERS, |(_, at_once)| at_once);
    let program = Some((program.into(), folder.to_path_buf()));
    Some(Target { name: format!("{package} {name}"), program, cargo: &[], at_once })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{built_once, filtered_out, left_out, target};

    #[test]
    fn only_the_programs_of_test_targets_are_run_by_themselves() {
        let message = |kind: &str, executable: Option<&str>| {
            let target = json!({ "kind": [kind], "name": "store" });
            json!({ "target": target, "executable": executable, "manifest_path": "/a/redis/Cargo.toml" })
        };
        let found = target(&message("test", Some("/a/target/store"))).unwrap();
        assert_eq!((&*found.name, found.at_once), ("redis store", "3"));
        assert_eq!(found.program.unwrap(), ("/a/target/store".into(), "/a/redis".into()));
        for other in [message("example", Some("/a/b")), message("lib", Some("/a/b")), message("test", None)] {
            assert!(target(&other).is_none(), "{other}");
        }
        assert!(target(&json!({ "reason": "build-finished", "success": true })).is_none());
    }

    #[test]
    fn a_second_build_of_the_stores_is_named() {
        let built = |is_test: bool| json!({ "target": { "name": "dlock_store" }, "profile": { "test": is_test } });
        assert!(built_once(&[built(false), built(true)]).is_ok());
        assert!(built_once(&[built(false), built(false)]).unwrap_err().contains("built 2 times"));
    }

    #[test]
    fn the_tests_that_are_left_are_counted() {
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 160 filtered out; finished in 0.1s";
        assert_eq!(filtered_out(line), 160);
        assert!(left_out(true, 160).is_err_and(|error| error.contains("160 tests did not run")));
        assert!(left_out(true, 0).is_ok() && left_out(false, 160).is_ok());
        assert_eq!(filtered_out("test a ... ok"), 0);
    }
}
