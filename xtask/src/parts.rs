//! What a task consists of, each part with its outcome and its time.

use std::time::{Duration, Instant};

use crate::sh::Result;

/// The parts done so far.
#[derive(Default)]
pub(crate) struct Parts(Vec<Part>);

struct Part {
    name: String,
    took: Duration,
    passed: bool,
}

impl Parts {
    /// Does one part. A failure is shown here and returned, for the caller to stop at or to go on.
    pub(crate) fn run<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {name}");
        let started = Instant::now();
        let done = work();
        if let Err(error) = &done {
            println!("FAILED: {error}");
        }
        self.0.push(Part { name: name.to_owned(), took: started.elapsed(), passed: done.is_ok() });
        done
    }

    /// Prints the list, and fails if a part did.
    pub(crate) fn finish(self) -> Result {
        println!();
        for Part { name, took, passed } in &self.0 {
            let outcome = if *passed { "ok" } else { "FAILED" };
            println!("{outcome:>6}  {:>7.1} s  {name}", took.as_secs_f64());
        }
        let total: Duration = self.0.iter().map(|part| part.took).sum();
        println!("        {:>7.1} s  in all", total.as_secs_f64());
        let failed: Vec<_> = self.0.iter().filter(|part| !part.passed).map(|part| part.name.as_str()).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn one_failed_part_fails_the_whole() {
        let mut parts = Parts::default();
        assert_eq!(parts.run("good", || Ok(1)).unwrap(), 1);
        assert!(parts.run("bad", || Err::<(), _>("no".into())).is_err());
        parts.run("fine", || Ok(())).unwrap();
        assert_eq!(parts.finish().unwrap_err().to_string(), "failed: bad");
    }
}
