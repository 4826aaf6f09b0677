//! All tests once, against one set of servers: several runs of `cargo test` beside each other.

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::thread;
use std::time::Instant;

use dlock_testkit::servers::SharedSet;

use crate::failures::{self, Failure, Failures};
use crate::log::Log;
use crate::sh::{Result, cargo, root};
use crate::test::{ALL, ETCD};
use crate::workspace::Workspace;

/// The test target of each store's crate that runs the conformance suite.
const SUITE: &str = "conformance";

/// The test target of each store's crate that asks its servers for what no other store has.
const STORE: &str = "store";

/// The runs, as the log calls them.
const THE_SUITE: &str = "the suite";
const THE_STORES: &str = "the tests of the stores";
const THE_OTHERS: &str = "the other tests";
const THE_DOCS: &str = "the examples of the docs";

/// So many tests that a busy machine made late are run again. More of them are no accident.
const MOST_AGAIN: usize = 5;

/// How a run of all tests ended.
#[derive(Default)]
pub(crate) struct Verdict {
    /// What failed, by the name of the run.
    pub(crate) failed: Vec<(&'static str, Failures)>,
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

/// Three runs beside each other. Each waits more than it works: one after the other would take twice as long.
pub(crate) fn side_by_side(set: &SharedSet, filter: &[&str], all: bool, log: &Log) -> Result<Verdict> {
    let tests = |targets: &[&str], filter: &[&str], at_once: &str| {
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD]);
        command.args(targets).arg("--").args(filter).envs(set.env()).envs(all.then_some((ALL, "1")));
        // On two cores the harness would run two at a time. With many more, tests whose servers are late fail.
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", at_once);
        }
        log.takes_errors_of(&mut command)?;
        Ok::<_, Box<dyn std::error::Error>>(command)
    };
    let others = targets_beside(&[SUITE, STORE])?;
    let others = others.iter().flat_map(|name| ["--test", name.as_str()]);
    let others: Vec<_> = ["--lib", "--bins"].into_iter().chain(others).collect();
    let (suite, stores, docs) = (["--test", SUITE], ["--test", STORE], ["--doc"]);
    let started = Instant::now();
    let ended = |name: &str| log.line(&format!("\n{name} ended after {:.0} s\n", started.elapsed().as_secs_f64()));
    // Their lines come in one piece, and not between the lines of the others.
    let kept = |name, mut command: Command| {
        let mut lines = String::new();
        let run = failures::run(&mut command, |line| lines.extend([line, "\n"]));
        ended(name);
        (lines, run.map_err(|error| error.to_string()))
    };
    let shown = |name, mut command: Command| {
        let run = failures::run(&mut command, |line| log.line(line));
        ended(name);
        run
    };
    let [suite_tests, stores_tests] = [tests(&suite, filter, "6")?, tests(&stores, filter, "4")?];
    let [others_tests, docs_tests] = [tests(&others, filter, "2")?, tests(&docs, filter, "2")?];
    let runs = thread::scope(|scope| {
        let suite_run = scope.spawn(|| kept(THE_SUITE, suite_tests));
        let stores_run = scope.spawn(|| kept(THE_STORES, stores_tests));
        let mut runs = vec![
            (THE_OTHERS, &others[..], shown(THE_OTHERS, others_tests)?),
            (THE_DOCS, &docs[..], shown(THE_DOCS, docs_tests)?),
        ];
        for (name, targets, run) in [(THE_STORES, &stores[..], stores_run), (THE_SUITE, &suite[..], suite_run)] {
            let (lines, run) = run.join().map_err(|_| format!("{name} could not be run"))?;
            log.line(&lines);
            runs.push((name, targets, run?));
        }
        Ok::<_, Box<dyn std::error::Error>>(runs)
    })?;
    let failed = runs.into_iter().filter_map(|(name, targets, failed)| Some((name, targets, failed?)));
    let failed: Vec<_> = failed.collect();
    let count: usize = failed.iter().map(|(.., failures)| failures.tests.len()).sum();
    let again = count <= MOST_AGAIN;
    let mut verdict = Verdict::default();
    for (name, targets, failures) in failed {
        let mut passes = again && failures.is_late();
        for test in failures.tests.iter().take_while(|_| again && failures.is_late()) {
            passes &= passes_alone(test, tests(targets, &["--exact", &test.name], "1")?, log);
        }
        if passes {
            verdict.passed_alone.extend(failures.tests);
        } else {
            verdict.failed.push((name, failures));
        }
    }
    Ok(verdict)
}

/// Whether a test for which the machine was late beside all the others passes alone. Nothing else is run again,
/// since a promise that is broken once is broken.
fn passes_alone(test: &Failure, mut alone: Command, log: &Log) -> bool {
    let mut passed = 0;
    let run = failures::run(&mut alone, |line| passed += usize::from(line.starts_with("test result: ok. 1 passed")));
    let passes = matches!(run, Ok(None)) && passed > 0;
    let then = if passes { "passed" } else { "failed too" };
    log.line(&format!("The machine was late beside the other tests. Alone, the test {then}:\n{test}"));
    passes
}

/// The names of the test targets that `cargo test` runs, but for these.
fn targets_beside(others: &[&str]) -> Result<BTreeSet<String>> {
    let mut names: BTreeSet<_> =
        Workspace::of(root())?.packages.into_iter().flat_map(|package| package.tests).collect();
    names.retain(|name| !others.contains(&name.as_str()));
    Ok(names)
}
