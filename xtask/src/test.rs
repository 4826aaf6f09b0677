//! `cargo xtask test`: everything that tests, against one private set of servers. With a store's name: the tests of that
//! store's crate, against the servers that they start.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::Instant;

use dlock_testkit::servers::SharedSet;

use crate::failures::{self, Failure};
use crate::parts::Parts;
use crate::sh::{Result, cargo, root, run};
use crate::workspace::Workspace;
use crate::{package, servers};

/// The one backend that a plain `cargo test` leaves out: its client needs `protoc`, which is there after `servers`.
pub(crate) const ETCD: &str = "dlock-rs/etcd-tls";

/// The test target of each store's crate that runs the conformance suite.
const SUITE: &str = "conformance";

/// The test target of each store's crate that asks its servers for what no other store has.
const STORE: &str = "store";

/// Set for the tests by `--all`: `dlock_testkit::conformance` reads it.
const ALL: &str = "DLOCK_TEST_ALL";

/// Runs the tests and reports how long each part took. The words are `[--all] [STORE] [-- FILTER]`.
pub(crate) fn test(words: &[&str]) -> Result {
    let (all, words) = match words {
        ["--all", words @ ..] => (true, words),
        words => (false, words),
    };
    let (store, filter) = match words {
        [] => (None, &[][..]),
        ["--", filter @ ..] => (None, filter),
        [store] => (Some(*store), &[][..]),
        [store, "--", filter @ ..] => (Some(*store), filter),
        [_, word, ..] => return Err(format!("`{word}` is not understood: a filter comes after `--`").into()),
    };
    let workspace = Workspace::of(root())?;
    if let Some(store) = store.filter(|store| !workspace.is_store(store)) {
        let stores: Vec<_> = workspace.stores().collect();
        return Err(format!("`{store}` is not a store; the stores are {}", stores.join(", ")).into());
    }
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = match store {
        None => add_to(&mut parts, filter, all),
        Some(store) => add_store_to(&mut parts, store, filter, all),
    };
    parts.finish()
}

/// The parts for one store. Its tests start the servers that they need, each on first use.
fn add_store_to(parts: &mut Parts, store: &str, filter: &[&str], all: bool) -> Result {
    parts.run("servers", || servers::run_for(store))?;
    let package = format!("dlock-{store}");
    parts.run("build", || run(&mut cargo(&["test", "--package", &package, "--all-features", "--no-run"])))?;
    parts.run("tests", || {
        let mut tests = cargo(&["test", "--package", &package, "--all-features", "--no-fail-fast", "--"]);
        match failures::run(tests.args(filter).envs(all.then_some((ALL, "1"))), show)? {
            Some(failed) => Err(failed.to_string().into()),
            None => Ok(()),
        }
    })
}

/// The parts, up to the first that fails.
pub(crate) fn add_to(parts: &mut Parts, filter: &[&str], all: bool) -> Result {
    parts.run("servers", servers::run)?;
    // As the tests are built later. `cargo build` would build half of it once more, since the units of a package that depends on
    // itself differ. `cargo xtask ci` compiles the benchmarks.
    parts.run("build", || run(&mut cargo(&["test", "--workspace", "--features", ETCD, "--no-run"])))?;
    // A filter asks for some tests alone.
    if filter.is_empty() {
        parts.run("packages", package::packaged)?;
    }
    with_servers(parts, |parts, set| parts.run("tests", || side_by_side(set, filter, all)))
}

/// The runs, as the log calls them.
const THE_SUITE: &str = "the suite";
const THE_STORES: &str = "the tests of the stores";
const THE_OTHERS: &str = "the other tests";
const THE_DOCS: &str = "the examples of the docs";

/// So many tests that a busy machine made late are run again. More of them are no accident.
const MOST_AGAIN: usize = 5;

/// Three runs beside each other. Each waits more than it works: one after the other would take twice as long.
fn side_by_side(set: &SharedSet, filter: &[&str], all: bool) -> Result {
    let tests = |targets: &[&str], filter: &[&str], at_once: &str| {
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD]);
        command.args(targets).arg("--").args(filter).envs(set.env()).envs(all.then_some((ALL, "1")));
        // On two cores the harness would run two at a time. With many more, tests whose servers are late fail.
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", at_once);
        }
        command
    };
    let others = targets_beside(&[SUITE, STORE])?;
    let others = others.iter().flat_map(|name| ["--test", name.as_str()]);
    let others: Vec<_> = ["--lib", "--bins"].into_iter().chain(others).collect();
    let (suite, stores, docs) = (["--test", SUITE], ["--test", STORE], ["--doc"]);
    let started = Instant::now();
    let ended = |name: &str| eprintln!("\n{name} ended after {:.0} s\n", started.elapsed().as_secs_f64());
    // Their lines come in one piece, and not between the lines of the others.
    let kept = |name, mut command: Command| {
        let mut lines = String::new();
        let run = failures::run(&mut command, |line| lines.extend([line, "\n"]));
        ended(name);
        (lines, run.map_err(|error| error.to_string()))
    };
    let shown = |name, mut command: Command| {
        let run = failures::run(&mut command, show);
        ended(name);
        run
    };
    let runs = thread::scope(|scope| {
        let suite_run = scope.spawn(|| kept(THE_SUITE, tests(&suite, filter, "6")));
        let stores_run = scope.spawn(|| kept(THE_STORES, tests(&stores, filter, "4")));
        let mut runs = vec![
            (THE_OTHERS, &others[..], shown(THE_OTHERS, tests(&others, filter, "2"))?),
            (THE_DOCS, &docs[..], shown(THE_DOCS, tests(&docs, filter, "2"))?),
        ];
        for (name, targets, run) in [(THE_STORES, &stores[..], stores_run), (THE_SUITE, &suite[..], suite_run)] {
            let (lines, run) = run.join().map_err(|_| format!("{name} could not be run"))?;
            eprintln!("{lines}");
            runs.push((name, targets, run?));
        }
        Ok::<_, Box<dyn std::error::Error>>(runs)
    })?;
    let failed = runs.into_iter().filter_map(|(name, targets, failed)| Some((name, targets, failed?)));
    let failed: Vec<_> = failed.collect();
    let count: usize = failed.iter().map(|(.., failures)| failures.tests.len()).sum();
    let again = count <= MOST_AGAIN;
    let mut errors = Vec::new();
    for (name, targets, failures) in failed {
        let alone = |test: &Failure| passes_alone(test, tests(targets, &["--exact", &test.name], "1"));
        if !(again && failures.is_late() && failures.tests.iter().all(alone)) {
            errors.push(format!("{name} {failures}"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

/// Whether a test for which the machine was late beside all the others passes alone. Nothing else is run again,
/// since a promise that is broken once is broken.
fn passes_alone(test: &Failure, mut alone: Command) -> bool {
    let mut passed = 0;
    let run = failures::run(&mut alone, |line| passed += usize::from(line.starts_with("test result: ok. 1 passed")));
    let passes = matches!(run, Ok(None)) && passed > 0;
    let then = if passes { "passed" } else { "failed too" };
    eprintln!("The machine was late beside the other tests. Alone, the test {then}:\n{test}");
    passes
}

fn show(line: &str) {
    eprintln!("{line}");
}

/// The names of the test targets that `cargo test` runs, but for these.
fn targets_beside(others: &[&str]) -> Result<BTreeSet<String>> {
    let mut names: BTreeSet<_> =
        Workspace::of(root())?.packages.into_iter().flat_map(|package| package.tests).collect();
    names.retain(|name| !others.contains(&name.as_str()));
    Ok(names)
}

/// Does `work` while a set of servers runs. They end with this process too, however it ends.
pub(crate) fn with_servers(parts: &mut Parts, work: impl FnOnce(&mut Parts, &SharedSet) -> Result) -> Result {
    let set = parts.run("start of the servers", || {
        let set = SharedSet::start()?;
        set.env().for_each(|(variable, url)| eprintln!("  {variable}={url}"));
        Ok(set)
    })?;
    let done = work(parts, &set);
    parts.run("end of the servers", || {
        drop(set);
        Ok(())
    })?;
    done
}
