//! The parts of a task, each with its outcome and its time. They are reported on the standard error, since the standard
//! output belongs to the result of the task, such as the table of a benchmark as JSON.

use std::fs;
use std::time::{Duration, Instant};

use crate::sh::Result;

/// The parts done so far.
#[derive(Default)]
pub(crate) struct Parts(Vec<Part>);

struct Part {
    name: String,
    took: Duration,
    /// The processor time of the part and its programs. A busy machine prolongs `took` much more than this.
    used: Duration,
    failure: Option<String>,
}

impl Parts {
    /// Does one part. A failure is shown here and returned, for the caller to stop at or to go on.
    pub(crate) fn run<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n=== {name}");
        let (started, before) = (Instant::now(), used_here());
        let done = work();
        let failure = done.as_ref().err().map(ToString::to_string);
        if let Some(failure) = &failure {
            eprintln!("FAILED: {failure}");
        }
        let used = used_here().saturating_sub(before);
        self.0.push(Part { name: name.to_owned(), took: started.elapsed(), used, failure });
        done
    }

    /// Prints the list, and fails if a part did.
    pub(crate) fn finish(self) -> Result {
        eprintln!();
        for Part { name, took, used, failure } in &self.0 {
            let outcome = if failure.is_none() { "ok" } else { "FAILED" };
            eprintln!("{outcome:>6}  {}  {name}", times(*took, *used));
        }
        let sum = |time: fn(&Part) -> Duration| self.0.iter().map(time).sum();
        eprintln!("        {}  in all", times(sum(|part| part.took), sum(|part| part.used)));
        // Once more: what came since may have moved it far up.
        let failed = self.0.iter().filter_map(|part| Some(format!("{}: {}", part.name, part.failure.as_ref()?)));
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("\n")).into()) }
    }
}

fn times(took: Duration, used: Duration) -> String {
    format!("{:>7.1} s, {:>7.1} s of processors", took.as_secs_f64(), used.as_secs_f64())
}

/// The processor times of a process, and of its programs that have ended, from its `stat` in `/proc`. Zero if the kernel does
/// not report them.
pub(crate) fn used(stat: &str) -> [Duration; 2] {
    // Behind the name, which may hold anything: the times of the process and of the others, in user and in system mode. The
    // kernel tells them in hundredths of a second.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11).take(4);
    let times: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let sum = |times: &[u64]| Duration::from_millis(times.iter().sum::<u64>() * 10);
    let (own, programs) = times.split_at(times.len().min(2));
    [sum(own), sum(programs)]
}

fn used_here() -> Duration {
    used(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::Parts;

    /// `cargo xtask bench --json | jq` reads the table and nothing else.
    #[test]
    fn only_the_usage_is_printed_to_the_standard_output() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for file in std::fs::read_dir(sources).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let prints = [concat!("print", "ln!("), concat!("prin", "t!(")]
                    .iter()
                    .any(|word| line.match_indices(word).any(|(at, _)| !line[..at].ends_with(['e', '_'])));
                assert!(!prints || line.contains("USAGE"), "{}: {line}", path.display());
            }
        }
    }

    #[test]
    fn the_programs_of_a_part_count() {
        let mut parts = Parts::default();
        let works = || {
            crate::sh::run(
                std::process::Command::new("sh").args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]),
            )
        };
        parts.run("works", works).unwrap();
        assert!(!parts.0[0].used.is_zero());
    }

    #[test]
    fn one_failed_part_fails_the_whole() {
        let mut parts = Parts::default();
        assert_eq!(parts.run("good", || Ok(1)).unwrap(), 1);
        assert!(parts.run("bad", || Err::<(), _>("no".into())).is_err());
        parts.run("fine", || Ok(())).unwrap();
        assert_eq!(parts.finish().unwrap_err().to_string(), "failed: bad: no");
    }
}
