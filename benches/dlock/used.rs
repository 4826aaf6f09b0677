//! The processor's time and the sleeps of this process, of all its threads. On a fast disk they decide how long a cycle takes, and
//! not the server.

use std::fs;

/// Since the process began, without threads that have ended.
pub(crate) struct Used {
    nanos: f64,
    sleeps: f64,
}

impl Used {
    pub(crate) fn now() -> Self {
        let mut used = Self { nanos: 0.0, sleeps: 0.0 };
        for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            // A thread that ends meanwhile has no files any more.
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let first = |text: &str| text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
            used.nanos += first(&read("schedstat")).unwrap_or_default();
            let status = read("status");
            let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            used.sleeps += sleeps.and_then(first).unwrap_or_default();
        }
        used
    }

    /// Microseconds of the processor and sleeps since then, for each cycle.
    pub(crate) fn since_per_cycle(before: &Self, cycles: usize) -> [f64; 2] {
        let now = Self::now();
        let cycles = cycles.max(1) as f64;
        [(now.nanos - before.nanos) / 1000.0 / cycles, (now.sleeps - before.sleeps) / cycles]
    }
}
