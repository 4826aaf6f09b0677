//! All tests once, against one set of servers: several test targets beside each other.

use std::fmt;
use std::process::Command;
use std::thread;
use std::time::Instant;

use dlock_testkit::servers::SharedSet;

use crate::build::{Build, Targets};
use crate::failures::{self, Failure, Failures};
use crate::log::Log;
use crate::sh::Result;
use crate::target::Target;

/// So many targets run at once. Each waits more than it works.
const AT_ONCE: usize = 4;

/// So many tests that a busy machine made late are run again. More of them are no accident.
const MOST_AGAIN: usize = 5;

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

/// The result of a target: its failures, and how many tests it left to `--all`.
type Ran = (Target, Option<Failures>, usize);

/// Runs all targets as they are built, several at once. The lines of each come in one piece, when it has ended.
pub(crate) fn side_by_side(build: Build, set: &SharedSet, filter: &[&str], all: bool, log: &Log) -> Result<Verdict> {
    let queue = Targets::default();
    let started = Instant::now();
    let run = |target: &Target| {
        let from = started.elapsed().as_secs_f64();
        let mut command = target.command(set, filter, all);
        log.takes_errors_of(&mut command)?;
        let (mut lines, mut left) = (String::new(), 0);
        let failed = failures::run(&mut command, |line| {
            lines.extend([line, "\n"]);
            left += filtered_out(line);
        });
        let to = started.elapsed().as_secs_f64();
        log.line(&format!("\n=== {}: {:.0} s, from {from:.0} s to {to:.0} s\n{lines}", target.name, to - from));
        Ok::<_, Box<dyn std::error::Error>>((failed?, left))
    };
    let work = || {
        let mut ran: Vec<Ran> = Vec::new();
        while let Some(target) = queue.next() {
            let (failed, left) = run(&target).map_err(|error| format!("{}: {error}", target.name))?;
            ran.push((target, failed, left));
        }
        Ok::<_, String>(ran)
    };
    let (built, ran) = thread::scope(|scope| {
        let building = scope.spawn(|| build.fill(&queue).map_err(|error| error.to_string()));
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?);
        let ran = ends.collect::<std::result::Result<Vec<_>, String>>();
        (building.join().unwrap_or_else(|_| Err("the thread of the build panicked".to_owned())), ran)
    });
    built?;
    let ran: Vec<_> = ran?.into_iter().flatten().collect();
    let left: usize = ran.iter().map(|(.., left)| left).sum();
    if filter.is_empty() {
        log.line(&left_out(all, left)?);
    }
    let failed: Vec<_> = ran.into_iter().filter_map(|(target, failed, _)| Some((target, failed?))).collect();
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

#[cfg(test)]
mod tests {
    use super::{filtered_out, left_out};

    #[test]
    fn the_tests_that_are_left_are_counted() {
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 160 filtered out; finished in 0.1s";
        assert_eq!(filtered_out(line), 160);
        assert!(left_out(true, 160).is_err_and(|error| error.contains("160 tests did not run")));
        assert!(left_out(true, 0).is_ok() && left_out(false, 160).is_ok());
        assert_eq!(filtered_out("test a ... ok"), 0);
    }
}
