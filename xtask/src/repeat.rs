//! `cargo xtask test --repeat N`: the tests N times, and how often each of them failed. A test that fails by accident is seen so.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::log::Log;
use crate::parts::Parts;
use crate::sh::{Result, root};
use crate::side_by_side::Verdict;

/// The folder of the logs, in `target/`.
const FOLDER: &str = "test-runs";

/// Runs `tests` so often, each time with a log of its own. Fails if one run did.
pub(crate) fn repeat(parts: &mut Parts, times: usize, mut tests: impl FnMut(&Log) -> Result<Verdict>) -> Result {
    let folder = root().join("target").join(FOLDER);
    // Logs of an earlier call would be taken for those of this one.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut tally = Tally { runs: times, failed: 0, tests: BTreeMap::new() };
    for run in 1..=times {
        let path = folder.join(format!("{run}.log"));
        // `finish` reports the run that failed, and the others go on.
        let _ = parts.run(&format!("run {run} of {times}: {}", path.display()), || {
            let verdict = match tests(&Log::at(&path)?) {
                Ok(verdict) => verdict,
                Err(error) => {
                    tally.add_failed(&format!("the run itself: {error}"), &[], &path);
                    return Err(error);
                }
            };
            tally.add(&verdict, &path);
            verdict.into_result()
        });
    }
    parts.run("all runs", || {
        if tally.failed > 0 {
            return Err(tally.to_string().into());
        }
        eprintln!("{tally}");
        Ok(())
    })
}

/// The failed tests of several runs.
struct Tally {
    runs: usize,
    /// How many runs failed.
    failed: usize,
    tests: BTreeMap<String, Seen>,
}

/// A test that failed, the lines of its first failure, and the logs of the runs.
#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    logs: Vec<PathBuf>,
    /// In how many of them it passed alone afterwards.
    passed_alone: usize,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict, log: &PathBuf) {
        self.failed += usize::from(!verdict.failed.is_empty());
        for (run, failures) in &verdict.failed {
            // Such a run names no test, or not the one that ended it.
            if failures.tests.is_empty() || failures.crashed {
                self.seen(&format!("{run} {failures}"), &[], log);
            }
            for test in &failures.tests {
                self.seen(&test.name, &test.lines, log);
            }
        }
        for test in &verdict.passed_alone {
            self.seen(&test.name, &test.lines, log).passed_alone += 1;
        }
    }

    fn add_failed(&mut self, what: &str, lines: &[String], log: &PathBuf) {
        self.failed += 1;
        self.seen(what, lines, log);
    }

    fn seen(&mut self, name: &str, lines: &[String], log: &PathBuf) -> &mut Seen {
        let seen = self.tests.entry(name.to_owned()).or_default();
        if seen.lines.is_empty() {
            seen.lines = lines.to_vec();
        }
        if !seen.logs.contains(log) {
            seen.logs.push(log.clone());
        }
        seen
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} runs failed", self.failed, self.runs)?;
        for (name, seen) in &self.tests {
            write!(f, "\n  {} of {}: {name}", seen.logs.len(), self.runs)?;
            if seen.passed_alone > 0 {
                write!(f, " (passed alone: {})", seen.passed_alone)?;
            }
            seen.lines.iter().try_for_each(|line| write!(f, "\n      {line}"))?;
            seen.logs.iter().try_for_each(|log| write!(f, "\n    {}", log.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::{Failure, Failures};

    fn failure(name: &str) -> Failure {
        Failure { name: name.to_owned(), lines: vec![format!("{name} broke")] }
    }

    fn failed(names: &[&str], crashed: bool) -> Verdict {
        let tests = names.iter().map(|name| failure(name)).collect();
        let failures = Failures { status: Default::default(), command: "cargo test".to_owned(), crashed, tests };
        Verdict { failed: vec![("the suite".to_owned(), failures)], passed_alone: Vec::new() }
    }

    fn tally(verdicts: &[Verdict]) -> Tally {
        let mut tally = Tally { runs: verdicts.len(), failed: 0, tests: BTreeMap::new() };
        for (run, verdict) in (1..).zip(verdicts) {
            tally.add(verdict, &format!("{run}.log").into());
        }
        tally
    }

    #[test]
    fn each_failed_test_has_its_count_its_lines_and_its_logs() {
        let tally = tally(&[failed(&["a", "b"], false), Verdict::default(), failed(&["a"], false)]);
        let expected = "2 of 3 runs failed\n  2 of 3: a\n      a broke\n    1.log\n    3.log\n  1 of 3: b\n      b broke\n    1.log";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn a_test_that_passed_alone_is_listed_and_fails_no_run() {
        let late = Verdict { failed: Vec::new(), passed_alone: vec![failure("a")] };
        let tally = tally(&[late]);
        assert_eq!(tally.to_string(), "0 of 1 runs failed\n  1 of 1: a (passed alone: 1)\n      a broke\n    1.log");
    }

    #[test]
    fn a_target_that_crashed_is_listed_beside_its_tests() {
        let text = tally(&[failed(&["a"], true), failed(&[], false)]).to_string();
        assert!(text.starts_with("2 of 2 runs failed\n"), "{text}");
        assert_eq!(text.matches("the suite ended with").count(), 2, "{text}");
        assert_eq!(text.matches("cargo test").count(), 2, "{text}");
    }
}
