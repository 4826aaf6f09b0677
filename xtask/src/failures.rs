//! A run of `cargo test`, and which tests failed in it. A reader of a long log looks at its end: the list stands there.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use std::{fmt, fs};

use crate::parts::used;
use crate::sh::{Result, not_run, text};

/// So much of a failed test's output is repeated: its panic, and not the log of its server.
const LINES: usize = 6;
const WIDTH: usize = 300;

/// The words in a test's panic after which a server did not answer in time, a lease ended because nobody renewed it in time (an error
/// as `Debug`, as `Display` and as a comparison of kinds show it), or the moment that the test needs did not come. A lock that is
/// held twice, a wrong token, another loss or a waiter that nobody wakes says none of it.
const LATE: [&str; 7] = [
    "kind: Outage",
    "left: Outage",
    "(outage, a retry can help)",
    "did not answer within",
    "kind: Lost(Deadline)",
    "left: Lost(Deadline)",
    "nothing is proven",
];

/// A target that has printed nothing for this time hangs. The longest test takes some minutes on one busy core.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// Runs the tests and shows each line of their output. Returns what failed. Tests that hang are ended.
pub(crate) fn run(command: &mut Command, show: impl FnMut(&str)) -> Result<Option<Failures>> {
    run_unless_silent(command, SILENCE, show)
}

fn run_unless_silent(command: &mut Command, longest: Duration, mut show: impl FnMut(&str)) -> Result<Option<Failures>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tests = command.spawn().map_err(|error| not_run(command, &error))?;
    let (sender, lines) = channel();
    let stdout = tests.stdout.take();
    // It is not joined: a program that a killed target has left may keep the pipe open.
    thread::spawn(move || {
        let mut lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n'));
        lines.try_for_each(|line| sender.send(line))
    });
    let mut reader = Reader::default();
    loop {
        let line = match lines.recv_timeout(longest) {
            Ok(line) => String::from_utf8_lossy(&line?).into_owned(),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                tests.kill()?;
                show(&format!(
                    "No test has ended for {longest:?}. The target was ended; its last lines name what runs."
                ));
                break;
            }
        };
        reader.read(&line);
        show(&line);
    }
    if let Some([own, programs]) = used_until_its_end(tests.id()) {
        show(&format!("{:.0} s of processors, and its programs {:.0} s\n", own.as_secs_f64(), programs.as_secs_f64()));
    }
    let status = tests.wait()?;
    if status.success() {
        return Ok(None);
    }
    let crashed = reader.started != reader.ended;
    Ok(Some(Failures { status, command: text(command), crashed, tests: reader.tests }))
}

/// Waits for the end of a child, and gives its processor times before its parent asks how it ended: then the kernel forgets them.
fn used_until_its_end(child: u32) -> Option<[Duration; 2]> {
    let file = format!("/proc/{child}/stat");
    loop {
        let stat = fs::read_to_string(&file).ok()?;
        if stat.rsplit_once(") ")?.1.starts_with('Z') {
            return Some(used(&stat));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A run that failed.
pub(crate) struct Failures {
    pub(crate) status: ExitStatus,
    pub(crate) command: String,
    /// A target ended before its last test.
    pub(crate) crashed: bool,
    pub(crate) tests: Vec<Failure>,
}

impl Failures {
    /// Whether all that went wrong is that the machine was late.
    pub(crate) fn is_late(&self) -> bool {
        !self.crashed && !self.tests.is_empty() && self.tests.iter().all(Failure::is_late)
    }
}

/// A test that failed, and the first lines of its output.
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

impl Failure {
    /// Whether it says that the machine was late, and nothing of a promise.
    fn is_late(&self) -> bool {
        let has = |words: &str| self.lines.iter().any(|line| line.contains(words));
        // A holder that nobody has told of another loss ends by its deadline.
        LATE.iter().any(|words| has(words)) && !has("right: Lost(")
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended with {}: ", self.status)?;
        // A target that did not compile, or that a signal ended, names no test.
        if self.tests.is_empty() || self.crashed {
            f.write_str(&self.command)?;
        }
        self.tests.iter().try_for_each(|test| write!(f, "\n{test}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.name)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n      {line}"))
    }
}

/// Reads what the harness of Rust and `libtest-mimic` print: `failures:`, the output of each failed test below its name,
/// and `failures:` again before the names alone.
#[derive(Default)]
struct Reader {
    tests: Vec<Failure>,
    /// The lines before the panic of the last test's own thread.
    others: Vec<String>,
    inside: bool,
    started: usize,
    ended: usize,
}

impl Reader {
    fn read(&mut self, line: &str) {
        if line == "failures:" {
            self.inside = !self.inside;
        } else if line.starts_with("test result: ") {
            (self.inside, self.ended) = (false, self.ended + 1);
        } else if !self.inside && is_start(line) {
            self.started += 1;
        } else if !self.inside || line.trim().is_empty() {
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" ----")) {
            self.tests.push(Failure { name: name.trim_end_matches(" stdout").to_owned(), lines: Vec::new() });
        } else if let Some(test) = self.tests.last_mut() {
            // Other threads may have panicked before, as in a client library, and the test goes on. But if the test waited
            // for them, its own panic says no more than that.
            if line.starts_with(&format!("thread '{}'", test.name)) {
                self.others = std::mem::take(&mut test.lines);
            } else if line == "a scoped thread panicked" {
                test.lines.clone_from(&self.others);
            }
            if test.lines.len() < LINES {
                test.lines.push(line.chars().take(WIDTH).collect());
            }
        }
    }
}

/// Such as `running 12 tests`.
fn is_start(line: &str) -> bool {
    let number = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    number.is_some_and(|(number, s)| number.parse::<usize>().is_ok() && ["", "s"].contains(&s))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{LINES, run, run_unless_silent};

    const OUTPUT: &str = "running 2 tests\ntest one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\n\nthread 'of a library' panicked:\n0 is not 1\nthread 'two' panicked:\n1 is not 2\n\
                          a\nb\nc\nd\nthe log of a server\n\nfailures:\n    two\n\ntest result: FAILED. 1 passed; 1 failed\n";

    fn printing(output: &str, status: u8) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s' \"$1\"; exit $2", "sh", output, &status.to_string()]);
        command
    }

    #[test]
    fn a_failed_test_is_named_with_the_first_lines_of_its_output() {
        let mut shown = Vec::new();
        let failed = run(&mut printing(OUTPUT, 101), |line| shown.push(line.to_owned())).unwrap().unwrap();
        assert!(shown.pop_if(|last| last.contains(" s of processors")).is_some() || cfg!(not(target_os = "linux")));
        assert!(!failed.is_late());
        let error = failed.to_string();
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
        let error = run(&mut printing("", 101), |_| {}).unwrap().unwrap().to_string();
        assert!(error.starts_with("ended with exit status: 101: sh -c"), "{error}");
        assert!(run(&mut printing("test one ... ok\n", 0), |_| {}).unwrap().is_none());
    }

    #[test]
    fn tests_that_hang_are_ended_and_named() {
        let mut hangs = Command::new("sh");
        hangs.args(["-c", "echo running 2 tests; echo test one has been running for over 60 seconds; exec sleep 600"]);
        let mut shown = Vec::new();
        let failed = run_unless_silent(&mut hangs, Duration::from_secs(5), |line| shown.push(line.to_owned()));
        assert!(failed.unwrap().unwrap().crashed);
        assert!(shown[1].contains("one has been running") && shown[2].contains("No test has ended"), "{shown:?}");
    }

    #[test]
    fn a_late_machine_is_told_from_a_broken_promise() {
        let said = [
            ("Error { kind: Outage, message: \"…\" }", true),
            ("failed: the backend failed: the server ends the session (outage, a retry can help)", true),
            ("3 waited, 97 had it at once: nothing is proven", true),
            ("assertion `left == right` failed\n  left: Outage\n right: Busy", true),
            ("assertion `left == right` failed\n  left: Lost(Deadline)\n right: BodyTimeout", true),
            ("assertion `left == right` failed\n  left: Lost(Deadline)\n right: Lost(Broken)", false),
            ("two holders", false),
        ];
        for (said, late) in said {
            let output = OUTPUT.replace("1 is not 2", said);
            let is_late = |output: &str| run(&mut printing(output, 101), |_| {}).unwrap().unwrap().is_late();
            assert_eq!(is_late(&output), late, "{said}");
            assert!(!is_late(&format!("{output}running 1 test\n")), "a signal ended the last target");
            let in_a_scope = OUTPUT.replace("0 is not 1", said).replace("1 is not 2", "a scoped thread panicked");
            assert_eq!(is_late(&in_a_scope), late, "{said}");
        }
    }
}
