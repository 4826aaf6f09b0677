//! The conformance suite over every backend that comes with dlock: one trial for each backend and case.
//!
//! Prints the table, and writes it to `target/conformance.json` after a full run. Nothing may be skipped here: a missing
//! server is a failure.

#![expect(clippy::panic, reason = "a test may fail by it")]

#[path = "conformance/local.rs"]
mod local;
#[path = "conformance/redis_sets.rs"]
mod redis_sets;
#[path = "conformance/redlock.rs"]
mod redlock;
#[path = "conformance/served.rs"]
mod served;

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use dlock_conformance::{Case, Outcome, Report, Store, cases};
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::{Builder, Runtime};

/// What opens a store, on first use: whoever picks one backend starts one server.
type Start = fn() -> Result<Box<dyn Store>, String>;

const STORES: &[(&str, Start)] = &[
    ("memory", local::memory),
    ("sqlite", local::sqlite),
    ("redis", served::redis),
    ("redis-8", served::redis8),
    ("redlock", redlock::redlock),
    ("redis-literal", served::literal),
    ("redisson", served::redisson),
    ("valkey", served::valkey),
    ("redis-tls", redis_sets::tls),
    ("redis-sentinel", redis_sets::sentinel),
    ("redis-cluster", redis_sets::cluster),
    ("mariadb", served::mariadb),
    ("mysql", served::mysql),
    // Left out by a plain `cargo test`, like the backend.
    #[cfg(feature = "etcd")]
    ("etcd", served::etcd),
];

struct Bench {
    name: &'static str,
    start: Start,
    store: OnceLock<Result<Box<dyn Store>, String>>,
    /// Whoever cuts the store off or restarts it has it alone.
    alone: RwLock<()>,
    runtime: Arc<Runtime>,
    outcomes: Mutex<HashMap<&'static str, Outcome>>,
}

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // The cases wait more than they work.
    arguments.test_threads.get_or_insert(8);
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = Arc::new(runtime.unwrap_or_else(|error| panic!("no runtime: {error}")));
    let benches: Vec<_> = STORES.iter().map(|&(name, start)| Arc::new(Bench::new(name, start, &runtime))).collect();
    let mut trials = Vec::new();
    for bench in &benches {
        for case in cases() {
            let bench = bench.clone();
            trials.push(Trial::test(format!("{}: {}", bench.name, case.name()), move || bench.run(case)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let reports: Vec<_> = benches.iter().map(|bench| bench.report()).collect();
        let told = reports.iter().filter(|report| !report.rows.is_empty()).cloned().collect::<Vec<_>>();
        // Written past the capture of the test harness, which is meant for noise.
        let _ = writeln!(std::io::stdout(), "{}", Report::table(&told));
        if cfg!(feature = "etcd") && reports.iter().all(|report| report.rows.len() == cases().len()) {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
            let _ = fs::write(target.join("conformance.json"), Report::to_json(&reports));
        }
    }
    // Now, not at exit: the servers end with their stores.
    drop(benches);
    conclusion.exit_code()
}

impl Bench {
    fn new(name: &'static str, start: Start, runtime: &Arc<Runtime>) -> Self {
        Self {
            name,
            start,
            store: OnceLock::new(),
            alone: RwLock::default(),
            runtime: runtime.clone(),
            outcomes: Mutex::default(),
        }
    }

    fn run(&self, case: &'static Case) -> Result<(), libtest_mimic::Failed> {
        let outcome = match self.store.get_or_init(self.start) {
            // A store that costs nothing: each case has its own.
            Ok(store) if store.in_process() => {
                let own = (self.start)()?;
                self.runtime.block_on(case.run(own.as_ref()))
            }
            // Said once for each case, so the end of a server's log must not be in it.
            Err(why) => Outcome::Skipped(format!("no store: {}", why.chars().take(200).collect::<String>())),
            Ok(store) if case.disturbs() => {
                let _alone = self.alone.write().unwrap_or_else(PoisonError::into_inner);
                self.runtime.block_on(case.run(store.as_ref()))
            }
            Ok(store) => {
                let _together = self.alone.read().unwrap_or_else(PoisonError::into_inner);
                self.runtime.block_on(case.run(store.as_ref()))
            }
        };
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.insert(case.name(), outcome.clone());
        if outcome.is_clean() { Ok(()) } else { Err(outcome.to_string().into()) }
    }

    fn report(&self) -> Report {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report::new(self.name.into());
        for case in cases() {
            if let Some(outcome) = outcomes.get(case.name()) {
                report.add(case.name(), outcome.clone());
            }
        }
        report.require_no_skips()
    }
}
