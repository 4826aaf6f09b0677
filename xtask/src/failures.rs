//! A run of `cargo test`, and which tests failed in it. A reader of a long log looks at its end: the list stands there.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::sh::{Result, not_run, text};

/// So much of a failed test's output is repeated: its panic, and not the log of its server.
const LINES: usize = 6;
const WIDTH: usize = 300;

/// Runs the tests and shows each line of their output. The error names each test that failed.
pub(crate) fn run(command: &mut Command, mut show: impl FnMut(&str)) -> Result {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tests = command.spawn().map_err(|error| not_run(command, &error))?;
    let mut failures = Failures::default();
    for line in tests.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n')) {
        let line = String::from_utf8_lossy(&line?).into_owned();
        failures.read(&line);
        show(&line);
    }
    let status = tests.wait()?;
    if status.success() {
        return Ok(());
    }
    // A target that did not compile, or that a signal ended, names no test.
    let named = if failures.text.is_empty() { text(command) } else { failures.text };
    Err(format!("ended with {status}: {named}").into())
}

/// Reads what the harness of Rust and `libtest-mimic` print: `failures:`, the output of each failed test below its name,
/// and `failures:` again before the names alone.
#[derive(Default)]
struct Failures {
    text: String,
    inside: bool,
    left: usize,
}

impl Failures {
    fn read(&mut self, line: &str) {
        if line == "failures:" {
            self.inside = !self.inside;
        } else if line.starts_with("test result: ") {
            self.inside = false;
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" ----")).filter(|_| self.inside)
        {
            self.left = LINES;
            let _ = write!(self.text, "\n  {}", name.trim_end_matches(" stdout"));
        } else if self.inside && self.left > 0 && !line.trim().is_empty() {
            self.left -= 1;
            let _ = write!(self.text, "\n      {}", line.chars().take(WIDTH).collect::<String>());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{LINES, run};

    const OUTPUT: &str = "test one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\n\nthread 'two' panicked:\n1 is not 2\n\
                          a\nb\nc\nd\nthe log of a server\n\nfailures:\n    two\n\ntest result: FAILED. 1 passed; 1 failed\n";

    fn printing(output: &str, status: u8) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s' \"$1\"; exit $2", "sh", output, &status.to_string()]);
        command
    }

    #[test]
    fn a_failed_test_is_named_with_the_first_lines_of_its_output() {
        let mut shown = Vec::new();
        let error = run(&mut printing(OUTPUT, 101), |line| shown.push(line.to_owned())).unwrap_err().to_string();
        assert_eq!(shown.join("\n"), OUTPUT.trim_end());
        assert_eq!(
            error.lines().skip(1).collect::<Vec<_>>()[..3],
            ["  two", "      thread 'two' panicked:", "      1 is not 2"]
        );
        assert_eq!(error.lines().count(), 2 + LINES);
        assert!(!error.contains("the log of a server"));
    }

    #[test]
    fn a_run_that_names_no_test_is_named_itself() {
        let error = run(&mut printing("", 101), |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("ended with exit status: 101: sh -c"), "{error}");
        run(&mut printing("test one ... ok\n", 0), |_| {}).unwrap();
    }
}
