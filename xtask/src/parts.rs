//! The parts of a task, each with its outcome and its time. They are reported on the standard error, since the standard
//! output belongs to the result of the task, such as the table of a benchmark as JSON.

use std::time::{Duration, Instant};

use crate::sh::Result;

/// The parts done so far.
#[derive(Default)]
pub(crate) struct Parts(Vec<Part>);

struct Part {
    name: String,
    took: Duration,
    failure: Option<String>,
}

impl Parts {
    /// Does one part. A failure is shown here and returned, for the caller to stop at or to go on.
    pub(crate) fn run<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n=== {name}");
        let started = Instant::now();
        let done = work();
        let failure = done.as_ref().err().map(ToString::to_string);
        if let Some(failure) = &failure {
            eprintln!("FAILED: {failure}");
        }
        self.0.push(Part { name: name.to_owned(), took: started.elapsed(), failure });
        done
    }

    /// Prints the list, and fails if a part did.
    pub(crate) fn finish(self) -> Result {
        eprintln!();
        for Part { name, took, failure } in &self.0 {
            let outcome = if failure.is_none() { "ok" } else { "FAILED" };
            eprintln!("{outcome:>6}  {:>7.1} s  {name}", took.as_secs_f64());
        }
        let total: Duration = self.0.iter().map(|part| part.took).sum();
        eprintln!("        {:>7.1} s  in all", total.as_secs_f64());
        // Once more: what came since may have moved it far up.
        let failed = self.0.iter().filter_map(|part| Some(format!("{}: {}", part.name, part.failure.as_ref()?)));
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("\n")).into()) }
    }
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
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let prints = [concat!("print", "ln!("), concat!("prin", "t!(")]
                    .iter()
                    .any(|word| line.match_indices(word).any(|(at, _)| !line[..at].ends_with(['e', '_'])));
                assert!(!prints || line.contains("USAGE"), "{}: {line}", path.display());
            }
        }
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
