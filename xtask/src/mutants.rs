//! `cargo xtask mutants`: breaks the engine in one place after another, and tells which breaks no test notices.
//!
//! A full run takes hours, so it can be broken off at any time. The next run goes on with the places that were not tested
//! yet. When none is left, it tests the missed ones again. `target/mutants` holds all that is kept between runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use dlock_testkit::servers::{Tree, cache_folder};

use crate::parts::Parts;
use crate::sh::{Result, cargo, read, run};
use crate::tree::put;

const TOOL: &str = "cargo-mutants";
const VERSION: &str = "27.1.0";

/// The core of the engine: turns, acquisition, and the life of a hold.
const FILES: [&str; 12] = [
    "dlock-runtime/src/hold/tenure.rs",
    "dlock-runtime/src/hold/tenure/**",
    "dlock-runtime/src/hold/duties.rs",
    "dlock-runtime/src/hold/loss.rs",
    "dlock-runtime/src/hold/renewal_schedule.rs",
    "dlock-runtime/src/hold/renewal.rs",
    "dlock-runtime/src/acquire/acquisition.rs",
    "dlock-runtime/src/acquire/batch.rs",
    "dlock-runtime/src/acquire/contend.rs",
    "dlock-runtime/src/acquire/single.rs",
    "dlock-runtime/src/acquire/turn.rs",
    "dlock-runtime/src/queue/**",
];

/// The suites that need no server.
const SUITES: [&str; 3] = ["--lib", "--test", "core"];

/// In seconds, for one run of the suites. It is many times what they take, since the machine may be busy.
const TIMEOUT: &str = "100";

/// The file in the folder of results that lists each outcome; also the printed name.
const OUTCOMES: [&str; 4] = ["caught", "missed", "timeout", "unviable"];

const FOLDER: &str = "target/mutants";

pub(crate) fn run_mutants() -> Result {
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = steps(&mut parts);
    parts.finish()
}

fn steps(parts: &mut Parts) -> Result {
    let tool = Tree::named(TOOL);
    parts.run(TOOL, || install(&tool))?;
    let program = tool.root().join("bin").join(TOOL);
    let all = parts.run("list", || list(&program))?;
    // A run that was broken off has left results too.
    let tested = parts.run("results so far", gather)?;
    let done = parts.run("mutants", || test(&program, &all, &tested));
    // Also of a run that was broken off.
    eprintln!("\n{}", figure(&all, &gather()?));
    done
}

/// Beside the unpacked servers, so that a clean build does not cost another build of the tool.
fn install(tool: &Tree) -> Result {
    if tool.version().as_deref() != Some(VERSION) {
        eprintln!("  building {TOOL} {VERSION} into {}", tool.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        let mut build = cargo(&["install", "--quiet", "--locked", TOOL, "--version", VERSION, "--no-track", "--root"]);
        run(build.arg(draft.path()))?;
        put(draft, tool, VERSION)?;
    }
    eprintln!("  {TOOL} {VERSION}");
    Ok(())
}

fn mutants(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["mutants", "--package", "dlock-runtime", "--exclude", "**/tests.rs"]);
    for files in FILES {
        command.args(["--file", files]);
    }
    command
}

fn list(program: &Path) -> Result<BTreeSet<String>> {
    let text = read(mutants(program).args(["--list", "--no-config"]))?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn test(program: &Path, all: &BTreeSet<String>, tested: &BTreeMap<String, String>) -> Result {
    let rest = all.iter().filter(|mutant| !tested.contains_key(*mutant)).count();
    // A missed one is tested again only when all were tested: else each run would begin with those.
    let is_done = |outcome: &str| rest > 0 || !matches!(outcome, "missed" | "timeout");
    let done = tested.iter().filter(|(_, outcome)| is_done(outcome)).map(|(mutant, _)| mutant);
    // This version of the tool does not filter deleted fields: the few of them are tested in each run.
    // In a file, since a command line is too short for hundreds of them.
    let config = format!("{FOLDER}/skipped.toml");
    fs::write(&config, skipping(done))?;
    let mut command = mutants(program);
    command.args(["--config", &config, "--output", FOLDER, "--timeout", TIMEOUT, "--jobs", "1"]);
    // In a random order, so that a run that is broken off says something about all files.
    command.args(["--shuffle", "--copy-target=false", "--"]).args(SUITES);
    // The copy of the tree is new in each run; what was built is not.
    command.env("CARGO_TARGET_DIR", crate::sh::root().join(FOLDER).join("build"));
    // Nobody reads their backtraces, and they take a third of the time to link.
    command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("RUST_BACKTRACE", "0");
    let status = command.stdin(Stdio::null()).status()?;
    // 2 and 3: it has found missed ones, or some that never ended. That is a result.
    match status.code() {
        Some(0 | 2 | 3) => Ok(()),
        _ => Err(format!("{TOOL} ended with {status}").into()),
    }
}

/// The outcome of each mutant that was tested, over all runs.
fn gather() -> Result<BTreeMap<String, String>> {
    let file = format!("{FOLDER}/tested.txt");
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let lines = kept.lines().filter_map(|line| line.split_once('\t'));
    let mut tested: BTreeMap<_, _> = lines.map(|(outcome, mutant)| (mutant.to_owned(), outcome.to_owned())).collect();
    for outcome in OUTCOMES {
        let last = fs::read_to_string(format!("{FOLDER}/mutants.out/{outcome}.txt")).unwrap_or_default();
        tested.extend(last.lines().map(|mutant| (mutant.to_owned(), outcome.to_owned())));
    }
    let lines: String = tested.iter().fold(String::new(), |mut text, (mutant, outcome)| {
        let _ = writeln!(text, "{outcome}\t{mutant}");
        text
    });
    fs::create_dir_all(FOLDER)?;
    // Under its name only when it is whole: this may be broken off too.
    fs::write(format!("{file}.new"), lines)?;
    fs::rename(format!("{file}.new"), file)?;
    Ok(tested)
}

/// A configuration that leaves these out.
fn skipping<'a>(done: impl Iterator<Item = &'a String>) -> String {
    let patterns: Vec<_> = done.map(|mutant| format!("  {:?},\n", format!("^{}$", escaped(mutant)))).collect();
    format!("exclude_re = [\n{}]\n", patterns.concat())
}

/// As a regular expression that only this text matches.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, character| {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
        escaped
    })
}

/// The figure for CONTRIBUTING. A mutant whose line has moved meanwhile counts as not tested.
fn figure(all: &BTreeSet<String>, tested: &BTreeMap<String, String>) -> String {
    let outcomes: Vec<_> = all.iter().filter_map(|mutant| tested.get(mutant)).collect();
    let count = |wanted: &str| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let mut text = format!("{} of {} mutants tested:", outcomes.len(), all.len());
    for outcome in OUTCOMES {
        let _ = write!(text, " {} {outcome}", count(outcome));
    }
    for (mutant, outcome) in tested.iter().filter(|(mutant, _)| all.contains(*mutant)) {
        if matches!(outcome.as_str(), "missed" | "timeout") {
            let _ = write!(text, "\n  {outcome:<8} {mutant}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_counts_only_mutants_that_still_exist() {
        let all = ["a", "b", "c", "d"].map(str::to_owned).into();
        let tested = [("a", "caught"), ("b", "missed"), ("moved", "missed")];
        let tested = tested.map(|(mutant, outcome)| (mutant.to_owned(), outcome.to_owned())).into();
        let text = figure(&all, &tested);
        assert_eq!(text, "2 of 4 mutants tested: 1 caught 1 missed 0 timeout 0 unviable\n  missed   b");
    }

    #[test]
    fn a_mutant_is_left_out_by_its_very_name() {
        let text = skipping([&"a.rs:1:2: replace f -> Option<&'a str> with None".to_owned()].into_iter());
        let pattern = r#""^a\\.rs:1:2: replace f \\-> Option<\\&'a str> with None$""#;
        assert_eq!(text, format!("exclude_re = [\n  {pattern},\n]\n"));
    }
}
